//! A terminal as a picture.

/// Columns of the terminal; longer lines go on in the next.
const COLUMNS: usize = 112;
/// Of one character, in the picture's units.
const WIDTH: f64 = 7.8;
const LINE: usize = 19;
/// Around the text, and above it for the window's bar.
const MARGIN: usize = 16;
const BAR: usize = 30;

/// Draws what is left on a terminal of `printed`: what was cleared or drawn over is not shown, and control sequences that
/// are not about that are left out. Lines that begin with `$ ` were typed.
pub fn draw(printed: &str) -> String {
    let lines = lines(printed);
    let columns = lines.iter().map(|line| line.text.chars().count()).max();
    let text_width = WIDTH * f64::from(u32::try_from(columns.unwrap_or(0)).unwrap_or(u32::MAX));
    let margins = f64::from(u32::try_from(2 * MARGIN).unwrap_or(u32::MAX));
    let width = (text_width + margins).ceil();
    let height = BAR + LINE * lines.len() + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1c2128\"/>\n"
    );
    for (place, colour) in ["#f47067", "#daaa3f", "#57ab5a"].iter().enumerate() {
        let x = MARGIN + 4 + 18 * place;
        svg.push_str(&format!(
            "<circle cx=\"{x}\" cy=\"15\" r=\"5\" fill=\"{colour}\"/>\n"
        ));
    }
    for (place, line) in lines.iter().enumerate() {
        let y = BAR + LINE * (place + 1) - 5;
        let colour = if line.is_typed { "#ffffff" } else { "#adbac7" };
        let text = escaped(&line.text);
        svg.push_str(&format!(
            "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{colour}\" xml:space=\"preserve\">{text}</text>\n"
        ));
    }
    svg.push_str("</svg>\n");
    svg
}

#[derive(Debug, PartialEq, Eq)]
struct Line {
    text: String,
    is_typed: bool,
}

fn lines(printed: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut is_typed = false;
    for characters in left_of(printed) {
        // A typed line goes on after a backslash.
        let goes_on = is_typed
            && lines
                .last()
                .is_some_and(|last: &Line| last.text.ends_with('\\'));
        is_typed = goes_on || characters.starts_with(&['$', ' ']);
        let mut pieces = characters.chunks(COLUMNS);
        let mut add = |piece: &[char]| {
            lines.push(Line {
                text: piece.iter().collect(),
                is_typed,
            });
        };
        add(pieces.next().unwrap_or_default());
        pieces.for_each(add);
    }
    lines
}

/// The lines that a terminal shows once all was printed.
fn left_of(printed: &str) -> Vec<Vec<char>> {
    let mut screen: Vec<Vec<char>> = Vec::new();
    let (mut row, mut column) = (0_usize, 0_usize);
    let mut characters = printed.chars();
    while let Some(character) = characters.next() {
        match character {
            '\r' => column = 0,
            '\n' => (row, column) = (row + 1, 0),
            '\u{1b}' => {
                let mut argument = String::new();
                let last = characters.by_ref().find(|character| {
                    let is_last = character.is_ascii_alphabetic();
                    if character.is_ascii_digit() {
                        argument.push(*character);
                    }
                    is_last
                });
                match last {
                    Some('A') => row = row.saturating_sub(argument.parse().unwrap_or(1)),
                    // From here to the end.
                    Some('J') => {
                        screen.truncate(row + 1);
                        if let Some(line) = screen.get_mut(row) {
                            line.truncate(column);
                        }
                    }
                    Some('K') => {
                        if let Some(line) = screen.get_mut(row) {
                            line.clear();
                        }
                    }
                    _ => {}
                }
            }
            character if character.is_control() => {}
            character => {
                if screen.len() <= row {
                    screen.resize(row + 1, Vec::new());
                }
                if let Some(line) = screen.get_mut(row) {
                    if line.len() <= column {
                        line.resize(column + 1, ' ');
                    }
                    if let Some(place) = line.get_mut(column) {
                        *place = character;
                    }
                }
                column += 1;
            }
        }
    }
    // The last lines of a view that was cleared.
    while screen.last().is_some_and(Vec::is_empty) {
        screen.pop();
    }
    screen
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_the_terminal_has_in_the_end() {
        for (printed, left) in [
            ("plain", "plain"),
            ("10 %\r\u{1b}[2K20 %\r\u{1b}[2Kdone", "done"),
            ("abc\rx", "xbc"),
            ("\u{1b}[1mbold\u{1b}[0m", "bold"),
            ("ended\r\n", "ended"),
            ("a\nb\nc\n\u{1b}[2A\u{1b}[Jd\n", "a|d"),
            ("a\n\nb\n", "a||b"),
        ] {
            let lines: Vec<String> = left_of(printed)
                .iter()
                .map(|line| line.iter().collect())
                .collect();
            assert_eq!(lines.join("|"), left, "{printed:?}");
        }
    }

    #[test]
    fn typed_lines_go_on_after_a_backslash_and_long_ones_in_the_next_line() {
        let long = "x".repeat(COLUMNS + 1);
        let lines = lines(&format!("$ a \\\n  | b\r\n{long}\n"));
        let typed: Vec<bool> = lines.iter().map(|line| line.is_typed).collect();
        assert_eq!(typed, [true, true, false, false]);
        assert_eq!(lines[3].text, "x");
    }

    #[test]
    fn a_picture_is_well_formed_whatever_was_printed() {
        let svg = draw("$ echo '<&>'\n<&>\n");
        assert!(svg.contains(">&lt;&amp;&gt;</text>"), "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }
}

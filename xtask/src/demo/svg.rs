//! A terminal as a picture.

/// Columns of the terminal; longer lines go on in the next.
const COLUMNS: usize = 112;
/// Of one character, in the picture's units.
const WIDTH: f64 = 7.8;
const LINE: usize = 19;
/// Around the text, and above it for the window's bar.
const MARGIN: usize = 16;
const BAR: usize = 30;

/// Draws what is left on a terminal of `printed`: lines that were cleared (`ESC [2K`) or begun again are not shown, and
/// other control sequences are left out. Lines that begin with `$ ` were typed.
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
    for line in printed.lines() {
        // A typed line goes on after a backslash.
        let goes_on = is_typed
            && lines
                .last()
                .is_some_and(|last: &Line| last.text.ends_with('\\'));
        let text = left_of(line);
        is_typed = goes_on || text.starts_with("$ ");
        let characters: Vec<char> = text.chars().collect();
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

/// What a terminal shows of a line once all of it was printed.
fn left_of(line: &str) -> String {
    let mut shown: Vec<char> = Vec::new();
    let mut column = 0;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\r' => column = 0,
            '\u{1b}' => {
                let sequence: String = characters
                    .by_ref()
                    .take_while(|c| !c.is_ascii_alphabetic())
                    .collect();
                // `take_while` has eaten the letter; of the sequences that are used only this one ends in 2.
                if sequence == "[2" {
                    shown.clear();
                }
            }
            character if character.is_control() => {}
            character => {
                if shown.len() <= column {
                    shown.resize(column + 1, ' ');
                }
                if let Some(place) = shown.get_mut(column) {
                    *place = character;
                }
                column += 1;
            }
        }
    }
    shown.into_iter().collect()
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
    fn a_line_is_shown_as_the_terminal_left_it() {
        for (printed, left) in [
            ("plain", "plain"),
            ("10 %\r\u{1b}[2K20 %\r\u{1b}[2Kdone", "done"),
            ("abc\rx", "xbc"),
            ("\u{1b}[1mbold\u{1b}[0m", "bold"),
            ("ended\r", "ended"),
        ] {
            assert_eq!(left_of(printed), left, "{printed:?}");
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

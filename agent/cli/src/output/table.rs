//! Columns as kubectl lines them up: as wide as the widest cell, three spaces between.

/// What takes the place of what is cut off.
const CUT: char = '…';

/// The narrowest that a column is made, so that names can still be distinguished.
const NARROWEST: usize = 8;

/// Lays out rows. Nothing is left at the end of a line.
pub fn render(rows: &[Vec<String>]) -> String {
    lay_out(rows, &widths(rows), 3)
}

/// Lays out rows on a screen: with less between columns where they do not fit, and then with the widest of them cut.
/// What does not fit even so is left to the screen's edge.
pub fn render_within(rows: &[Vec<String>], columns: usize) -> String {
    let mut widths = widths(rows);
    let width = |widths: &[usize], gap: usize| {
        widths.iter().sum::<usize>() + gap * widths.len().saturating_sub(1)
    };
    let gap = (1..=3).rev().find(|gap| width(&widths, *gap) <= columns);
    let gap = gap.unwrap_or(1);
    let too_much = width(&widths, gap).saturating_sub(columns);
    let Some(widest) = widths.iter_mut().max() else {
        return String::new();
    };
    *widest = (*widest)
        .min(NARROWEST)
        .max(widest.saturating_sub(too_much));
    lay_out(rows, &widths, gap)
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect()
}

fn lay_out(rows: &[Vec<String>], widths: &[usize], gap: usize) -> String {
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, &width) in row.iter().zip(widths) {
            let mut shown: String = cell.chars().take(width).collect();
            if cell.chars().count() > width {
                shown.pop();
                shown.push(CUT);
            }
            // The width of a formatted text has a bound, and a cell has none.
            let missing = width.saturating_sub(shown.chars().count());
            line.push_str(&shown);
            line.push_str(&" ".repeat(missing + gap));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_may_be_wider_than_a_formatted_text_may_be() {
        let long = "x".repeat(70_000);
        let rows = [
            vec![long.clone(), "a".to_owned()],
            vec!["y".to_owned(), "b".to_owned()],
        ];
        assert!(render(&rows).starts_with(&format!("{long}   a\ny ")));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["NAME", "IP", "READY"],
            ["web", "10.0.2.17", "True"],
            ["stuck", "", "False"],
        ];
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| (*cell).to_owned()).collect())
            .collect();
        assert_eq!(
            render(&rows),
            "NAME    IP          READY\nweb     10.0.2.17   True\nstuck               False\n"
        );
        // The same within less and less.
        let within = |columns: usize| {
            let text = render_within(&rows, columns);
            text.lines().nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!(within(25), "web     10.0.2.17   True");
        assert_eq!(within(24), "web    10.0.2.17  True");
        assert_eq!(within(21), "web   10.0.2.17 True");
        assert_eq!(within(20), "web   10.0.2.… True");
        assert_eq!(within(1), within(20));
        assert_eq!(render_within(&[], 80), "");
    }
}

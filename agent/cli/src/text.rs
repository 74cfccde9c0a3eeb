//! Text of objects as a terminal shows it.

use serde_json::Value;

/// Text at a JSON pointer; empty where there is none. Control characters of whoever wrote it do not
/// reach the terminal.
pub fn text(value: &Value, pointer: &str) -> String {
    let text = match value.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    text.chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect()
}

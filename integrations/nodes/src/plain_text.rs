//! Foreign text that passes from one side to the other.

use rankguard_model::is_hidden;

/// Reduces foreign text to one line of printable ASCII, at most `most` characters, without double quotes and semicolons:
/// `scontrol` removes quotes, and a semicolon separates the reasons of a cordon. Empty text becomes `no reason given`.
pub fn plain_text(text: &str, most: usize) -> String {
    let letter = |letter: char| match letter {
        '"' => '\'',
        ';' => ',',
        _ if letter.is_whitespace() || is_hidden(letter) => ' ',
        _ if letter.is_ascii_graphic() => letter,
        _ => '?',
    };
    let text: String = text.chars().take(most.saturating_mul(4)).map(letter).collect();
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut text = words.join(" ");
    if text.len() > most {
        text.truncate(most.saturating_sub(3));
        text.push_str("...");
    }
    if text.is_empty() {
        "no reason given".to_owned()
    } else {
        text
    }
}

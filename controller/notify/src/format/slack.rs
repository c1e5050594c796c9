//! Bodies of Slack's incoming webhooks: `{"text": ...}` in mrkdwn.

use serde_json::json;

use super::OutgoingMessage;

/// Longest text, characters; Slack cuts longer ones.
const TEXT_MAX: usize = 3_000;

/// Makes the body. Incoming webhooks have no threads: each text begins with the number of its case.
pub(crate) fn body(message: &OutgoingMessage<'_>) -> serde_json::Result<Vec<u8>> {
    let mut lines = message.lines();
    if let Some(last) = lines.last_mut() {
        *last = format!("More: `{}`", message.incident.command);
    }
    let text: String = lines.join("\n").chars().take(TEXT_MAX).collect();
    serde_json::to_vec(&json!({ "text": escape(&text) }))
}

/// Escapes the three characters with a meaning, as Slack requires.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

//! Tag of a message in a system log: `sshd[100]: text` (RFC 3164, section 4.1.3).

/// Tag of a message in a system log, and the text after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyslogTag<'a> {
    /// Name of the program.
    pub name: &'a str,
    /// Process id in brackets.
    pub pid: Option<&'a str>,
    /// Text after the tag.
    pub text: &'a str,
}

impl<'a> SyslogTag<'a> {
    /// Splits `sshd[100]: text` and `nvidia-persistenced: text`; `None` if the message does not begin with a name.
    pub fn parse(message: &'a str) -> Option<Self> {
        let (head, text) = message.split_once(": ")?;
        let (name, pid) = match head.strip_suffix(']') {
            Some(head) => head.split_once('[').map(|(name, pid)| (name, Some(pid)))?,
            None => (head, None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-/()@".contains(c);
        let is_number = |pid: &str| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
        let is_tag = !name.is_empty() && name.chars().all(is_name) && pid.is_none_or(is_number);
        is_tag.then_some(Self { name, pid, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_name_with_or_without_a_process_id() {
        let parsed = |message| SyslogTag::parse(message).map(|tag| (tag.name, tag.pid, tag.text));
        assert_eq!(
            parsed("postfix/smtp[9]: connect to mx: refused"),
            Some(("postfix/smtp", Some("9"), "connect to mx: refused"))
        );
        assert_eq!(
            parsed("nvidia-persistenced: Failed"),
            Some(("nvidia-persistenced", None, "Failed"))
        );
        for message in [
            "no tag here",
            "nvme nvme0: I/O timeout",
            "sshd[]: text",
            "sshd[a]: text",
            ": text",
        ] {
            assert_eq!(parsed(message), None, "{message}");
        }
    }
}

//! Errors formatted as one line of text.

use std::error::Error;

/// Formats an error and its sources on one line. A source that its parent's message already contains is left out,
/// because many libraries repeat it.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        below = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{what}")]
    struct Told {
        what: &'static str,
        source: Option<Box<Told>>,
    }

    fn error(what: &'static str, below: Option<Told>) -> Told {
        Told {
            what,
            source: below.map(Box::new),
        }
    }

    #[test]
    fn every_cause_is_told_once() {
        let disk = error("no space left on device", None);
        let repeats = error("cannot write 0.shard: no space left on device", Some(disk));
        let error = error("cannot save step 7", Some(repeats));
        let want = "cannot save step 7: cannot write 0.shard: no space left on device";
        assert_eq!(with_causes(&error), want);
    }
}

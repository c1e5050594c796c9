//! Records of `/dev/kmsg`: `priority,sequence,microseconds,flags[,...];text`, then lines ` KEY=value`.

/// Head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHead {
    /// Sequence number in the kernel's ring; the next record has the next number.
    pub(crate) seq: u64,
    /// Time since boot, microseconds.
    pub(crate) micros: u64,
}

/// Parses the head of a record; `None` if the line is not one (a continuation, or another format).
pub(crate) fn head(line: &str) -> Option<RecordHead> {
    let (head, _) = line.split_once(';')?;
    let mut fields = head.split(',');
    let _priority: u32 = fields.next()?.parse().ok()?;
    let seq = fields.next()?.parse().ok()?;
    let micros = fields.next()?.parse().ok()?;
    let flags = fields.next()?;
    let known = flags.chars().all(|c| matches!(c, '-' | 'c' | '+'));
    known.then_some(RecordHead { seq, micros })
}

/// Counts missing records by their sequence numbers.
#[derive(Debug, Default)]
pub(crate) struct SequenceCounter {
    last: Option<u64>,
}

impl SequenceCounter {
    /// Creates a counter that continues after this number.
    pub(crate) fn after(last: Option<u64>) -> Self {
        Self { last }
    }

    /// Returns the newest number.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last
    }

    /// Takes the next number and returns how many are missing before it. A number that is not higher begins a new
    /// sequence: the ring is another one (a reboot, an overwritten file).
    pub(crate) fn take(&mut self, seq: u64) -> u64 {
        let missing = self.last.map_or(0, |last| seq.saturating_sub(last + 1));
        self.last = Some(seq);
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_told_from_continuations_and_other_formats() {
        assert_eq!(
            head("4,1234,98765432,-;NVRM: a; b"),
            Some(RecordHead {
                seq: 1234,
                micros: 98_765_432
            })
        );
        assert!(head("6,1,2,c,caller=T12;text").is_some());
        for other in [
            " SUBSYSTEM=pci",
            "[ 12.3] NVRM: x; y",
            "",
            ";",
            "6,1;x",
            "4,-1,2,-;x",
            "a,b,c,d;e",
        ] {
            assert_eq!(head(other), None, "{other}");
        }
    }

    /// RG-4.
    #[test]
    fn missing_numbers_are_counted() {
        let mut counter = SequenceCounter::default();
        assert_eq!(counter.take(100), 0);
        assert_eq!(counter.take(101), 0);
        assert_eq!(counter.take(105), 3);
        assert_eq!(counter.take(3), 0);
        assert_eq!(SequenceCounter::after(Some(7)).take(9), 1);
    }
}

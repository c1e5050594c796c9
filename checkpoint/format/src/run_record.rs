//! Run records in the folder of a job: `RUN` identifies the run that owns the folder, and each attempt has one
//! `ATTEMPT-g<generation>`. Both are written once, put-if-absent, and never changed.
//!
//! An attempt that starts from a step supersedes the checkpoints of later steps that earlier generations committed:
//! they are never selected for a restore again ([`AttemptSet::is_superseded`]).

use rankguard_model::{Generation, JobId, RunId, RunStart, Step, Timestamp};
use serde::{Deserialize, Serialize};

use crate::envelope::{self, EnvelopeError};
use crate::{CheckpointId, NameError, check_job};

/// Name of the file that identifies the run of a job folder.
pub const RUN_FILE: &str = "RUN";

/// Maximum size of a `RUN` or `ATTEMPT` file, bytes.
pub const MAX_RECORD_BYTES: usize = 64 << 10;

const RUN_MAGIC: &str = "rankguard-run";
const ATTEMPT_MAGIC: &str = "rankguard-attempt";
const ATTEMPT_PREFIX: &str = "ATTEMPT-g";

/// Identity of the run that owns a job folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Id of the run.
    pub run: RunId,
    /// Job of the folder.
    pub job: JobId,
    /// Time at which the run was created.
    pub created: Timestamp,
}

/// Record of one attempt of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Id of the run.
    pub run: RunId,
    /// Job of the folder.
    pub job: JobId,
    /// First generation of this attempt; lower generations belong to earlier attempts.
    pub first: Generation,
    /// Random id of the submission that created the attempt.
    pub claim: RunId,
    /// Checkpoint that the attempt started from; absent for a start without checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<RunStart>,
    /// Time at which the attempt was created.
    pub created: Timestamp,
}

/// Reason why bytes are not a valid run or attempt record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum RecordError {
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("names run {run:?}, which is not 32 hexadecimal digits")]
    Run { run: String },
}

impl RunRecord {
    /// Returns the content of a `RUN` file.
    pub fn to_bytes(&self) -> Vec<u8> {
        envelope::seal(RUN_MAGIC, self)
    }

    /// Parses and validates a `RUN` file. Returns an error if the envelope is damaged or of another kind, or if the job
    /// name or the run id is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = envelope::open(RUN_MAGIC, MAX_RECORD_BYTES, bytes)?;
        check_job(&record.job)?;
        check_run(&record.run)?;
        Ok(record)
    }
}

impl AttemptRecord {
    /// Returns the content of an `ATTEMPT-g<generation>` file.
    pub fn to_bytes(&self) -> Vec<u8> {
        envelope::seal(ATTEMPT_MAGIC, self)
    }

    /// Parses and validates an `ATTEMPT-g<generation>` file. Returns an error if the envelope is damaged or of another
    /// kind, or if the job name, the run id or the claim is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = envelope::open(ATTEMPT_MAGIC, MAX_RECORD_BYTES, bytes)?;
        check_job(&record.job)?;
        check_run(&record.run)?;
        check_run(&record.claim)?;
        Ok(record)
    }
}

/// Validates that a run id is 32 hexadecimal digits; the error holds at most 64 characters of it.
fn check_run(run: &RunId) -> Result<(), RecordError> {
    let text = run.as_str();
    if text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(());
    }
    let run = text.chars().take(64).collect();
    Err(RecordError::Run { run })
}

/// Returns the file name of the attempt with this first generation.
pub fn attempt_file(first: Generation) -> String {
    format!("{ATTEMPT_PREFIX}{}", first.0)
}

/// Parses an attempt file name into the first generation of the attempt. Returns `None` for other names, also for those
/// that [`attempt_file`] does not produce, such as with leading zeros.
pub fn attempt_of(file: &str) -> Option<Generation> {
    let first = Generation(file.strip_prefix(ATTEMPT_PREFIX)?.parse().ok()?);
    (attempt_file(first) == file).then_some(first)
}

/// Attempts of a run, reduced to the fields that decide which checkpoints are superseded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptSet {
    /// First generation and start step of each attempt, sorted.
    attempts: Vec<(Generation, Option<Step>)>,
}

impl AttemptSet {
    /// Builds the set from attempt records.
    pub fn new<'a>(records: impl IntoIterator<Item = &'a AttemptRecord>) -> Self {
        let attempt = |record: &AttemptRecord| (record.first, record.start.as_ref().map(|start| start.step));
        let mut attempts: Vec<_> = records.into_iter().map(attempt).collect();
        attempts.sort_unstable();
        Self { attempts }
    }

    /// Returns the number of attempts.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Returns true if there is no attempt, as in folders of versions without run records.
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// Returns the first generation of the newest attempt.
    pub fn newest(&self) -> Option<Generation> {
        self.attempts.last().map(|(first, _)| *first)
    }

    /// Returns the first generation of the attempt that contains `generation`; `None` if it precedes all attempts.
    pub fn attempt_with(&self, generation: Generation) -> Option<Generation> {
        let mut earlier = self.attempts.iter().rev().map(|(first, _)| *first);
        earlier.find(|first| *first <= generation)
    }

    /// Returns true if an attempt after the generation of this checkpoint started from an earlier step.
    pub fn is_superseded(&self, id: CheckpointId) -> bool {
        self.superseded_by(id).is_some()
    }

    /// Returns the first generation of the earliest attempt that supersedes a checkpoint; `None` if it is not
    /// superseded.
    pub fn superseded_by(&self, id: CheckpointId) -> Option<Generation> {
        let supersedes = |attempt: &&(Generation, Option<Step>)| {
            attempt.0 > id.generation && attempt.1.is_some_and(|start| start < id.step)
        };
        self.attempts.iter().find(supersedes).map(|(first, _)| *first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(first: u64, start: Option<u64>) -> AttemptRecord {
        AttemptRecord {
            run: RunId::from("0".repeat(32)),
            job: JobId::from("train"),
            first: Generation(first),
            claim: RunId::from("1".repeat(32)),
            start: start.map(|step| RunStart {
                job: JobId::from("train"),
                store: None,
                run: None,
                step: Step(step),
                generation: Generation(1),
            }),
            created: Timestamp(5),
        }
    }

    fn id(step: u64, generation: u64) -> CheckpointId {
        CheckpointId {
            step: Step(step),
            generation: Generation(generation),
        }
    }

    #[test]
    fn records_are_read_as_they_were_written_and_damage_is_noticed() {
        let record = attempt(4, Some(30));
        let bytes = record.to_bytes();
        assert_eq!(AttemptRecord::from_bytes(&bytes), Ok(record));
        let run = RunRecord {
            run: RunId::from("ab".repeat(16)),
            job: JobId::from("train"),
            created: Timestamp(7),
        };
        assert_eq!(RunRecord::from_bytes(&run.to_bytes()), Ok(run));
        assert!(RunRecord::from_bytes(&bytes).is_err(), "another kind of record");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(AttemptRecord::from_bytes(&damaged).is_err(), "byte {at}");
        }
        let wrong = RunRecord {
            run: RunId::from("../x"),
            job: JobId::from("train"),
            created: Timestamp(7),
        };
        assert!(matches!(
            RunRecord::from_bytes(&wrong.to_bytes()),
            Err(RecordError::Run { .. })
        ));
    }

    #[test]
    fn a_rollback_supersedes_later_steps_of_earlier_generations_and_nothing_else() {
        let set = AttemptSet::new(&[attempt(1, None), attempt(4, Some(30))]);
        assert!(set.is_superseded(id(31, 3)) && set.is_superseded(id(1000, 1)));
        assert!(!set.is_superseded(id(30, 3)), "the start itself");
        assert!(!set.is_superseded(id(31, 4)), "the new attempt's own");
        let twice = AttemptSet::new(&[attempt(6, Some(20)), attempt(1, None), attempt(4, Some(30))]);
        assert!(twice.is_superseded(id(25, 1)) && twice.is_superseded(id(40, 5)));
        assert_eq!(twice.superseded_by(id(40, 1)), Some(Generation(4)));
        assert!(!twice.is_superseded(id(40, 6)));
        assert_eq!(twice.attempt_with(Generation(5)), Some(Generation(4)));
        assert_eq!(AttemptSet::default().attempt_with(Generation(5)), None);
        assert_eq!(twice.newest(), Some(Generation(6)));
    }

    #[test]
    fn a_file_name_has_one_spelling() {
        assert_eq!(attempt_of(&attempt_file(Generation(12))), Some(Generation(12)));
        for wrong in ["ATTEMPT-g012", "ATTEMPT-g", "ATTEMPT-g-1", "RUN", ".tmp-ATTEMPT-g1-00"] {
            assert_eq!(attempt_of(wrong), None, "{wrong}");
        }
    }
}

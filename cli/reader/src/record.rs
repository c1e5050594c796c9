//! Stored requests and answers: one file each, for its owner only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rankguard_files::private;
use rankguard_model::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// Files that the folder keeps; the oldest are removed.
const FILES_KEPT: usize = 1_000;
const ENDING: &str = ".reading.json";

/// What was sent, and what came back.
#[derive(Debug, Serialize)]
pub(crate) struct ReadingRecord<'a> {
    pub(crate) at: Timestamp,
    /// Origin of the service.
    pub(crate) service: String,
    /// Body of the request.
    pub(crate) request: &'a Value,
    /// Body of the answer, or the reason why there is none; absent while the answer is awaited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
}

/// Folder of the records.
#[derive(Debug)]
pub(crate) struct RecordFolder(PathBuf);

impl RecordFolder {
    /// Opens the folder; creates it if it does not exist.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        private::create_folder(path)?;
        let folder = Self(path.to_owned());
        folder.remove_old()?;
        Ok(folder)
    }

    /// Stores a record under the time of its request and a number that no other record of that time has.
    pub(crate) fn store(&self, record: &ReadingRecord<'_>) -> io::Result<PathBuf> {
        let stem = record.at.to_string().replace([':', '.'], "-");
        for number in 0..1_000 {
            let path = self.0.join(format!("{stem}-{number}{ENDING}"));
            match private::create_file(&path, 0o600) {
                Ok(_) => {
                    Self::replace(&path, record)?;
                    return Ok(path);
                }
                Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => {}
                Err(problem) => return Err(problem),
            }
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists))
    }

    /// Replaces a stored record, to add its answer.
    pub(crate) fn replace(path: &Path, record: &ReadingRecord<'_>) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(record).map_err(io::Error::other)?;
        private::replace_file(path, &text, 0o600)
    }

    fn remove_old(&self) -> io::Result<()> {
        let entries = fs::read_dir(&self.0)?.filter_map(Result::ok);
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.ends_with(ENDING))
            .collect();
        // Names begin with the time.
        names.sort_unstable();
        // One more is about to be stored.
        let surplus = (names.len() + 1).saturating_sub(FILES_KEPT);
        for name in names.into_iter().take(surplus) {
            fs::remove_file(self.0.join(name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn records_of_one_moment_have_their_own_files_for_their_owner() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = RecordFolder::open(&dir.path().join("readings")).expect("created");
        let request = json!({"model": "m"});
        let mut record = ReadingRecord {
            at: Timestamp(1_700_000_000_000_000_000),
            service: "http://h".to_owned(),
            request: &request,
            answer: None,
        };
        let (first, second) = (
            folder.store(&record).expect("stored"),
            folder.store(&record).expect("stored"),
        );
        assert_ne!(first, second);
        record.answer = Some(json!("x"));
        RecordFolder::replace(&first, &record).expect("replaced");
        let read = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).expect("read")).expect("JSON");
        assert_eq!(
            (&read(&first)["answer"], &read(&second)["answer"]),
            (&json!("x"), &Value::Null)
        );
        let mode = fs::metadata(&first).expect("its mode").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_oldest_records_give_way_and_other_files_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        for at in 0..FILES_KEPT + 5 {
            fs::write(dir.path().join(format!("2026-{at:05}{ENDING}")), "{}").expect("written");
        }
        fs::write(dir.path().join("0-notes.txt"), "").expect("written");
        RecordFolder::open(dir.path()).expect("opened");
        let left = fs::read_dir(dir.path()).expect("listed").count();
        assert_eq!(left, FILES_KEPT);
        assert!(dir.path().join("0-notes.txt").exists());
        assert!(!dir.path().join(format!("2026-{:05}{ENDING}", 5)).exists());
    }
}

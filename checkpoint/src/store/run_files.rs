//! Run records in the folder of a job: `RUN` and `ATTEMPT-g<generation>` ([`crate::format::RunRecord`]).

use rankguard_model::{Generation, JobId};

use crate::format::{
    AttemptRecord, AttemptSet, MAX_RECORD_BYTES, RUN_FILE, RecordError, RunRecord, attempt_file, attempt_of,
};
use crate::store::files::{self, RenameResult};
use crate::store::{Store, StoreError};

impl Store {
    /// Reads the run record of a job folder; `None` if there is none.
    pub fn run_record(&self, job: &JobId) -> Result<Option<RunRecord>, StoreError> {
        self.read_record(job, RUN_FILE, RunRecord::from_bytes)
    }

    /// Reads the attempt records of the run, sorted by first generation.
    pub fn attempt_records(&self, job: &JobId) -> Result<Vec<AttemptRecord>, StoreError> {
        let names = files::names(&self.job_dir(job)?)?.unwrap_or_default();
        let mut firsts: Vec<Generation> = names.iter().filter_map(|name| attempt_of(name)).collect();
        firsts.sort_unstable();
        let records = firsts
            .into_iter()
            .map(|first| self.read_record(job, &attempt_file(first), AttemptRecord::from_bytes));
        Ok(records.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// Returns the attempts, reduced to the fields that decide which checkpoints are superseded.
    pub fn attempts(&self, job: &JobId) -> Result<AttemptSet, StoreError> {
        Ok(AttemptSet::new(&self.attempt_records(job)?))
    }

    /// Writes the run record if there is none. Returns the record on disk, and true if it is of the same run.
    pub fn put_run(&self, record: &RunRecord) -> Result<(RunRecord, bool), StoreError> {
        let dir = self.job_dir(&record.job)?;
        files::ensure_dir_all(&dir)?;
        match files::put_bytes(&dir, RUN_FILE, &record.to_bytes())? {
            RenameResult::Written => Ok((record.clone(), true)),
            RenameResult::AlreadyThere => {
                let missing = || StoreError::Missing {
                    path: dir.join(RUN_FILE),
                };
                let found = self.run_record(&record.job)?.ok_or_else(missing)?;
                let is_own = found.run == record.run;
                Ok((found, is_own))
            }
        }
    }

    /// Writes an attempt record, unless one of that generation exists. Returns true if it was written.
    pub fn put_attempt(&self, record: &AttemptRecord) -> Result<bool, StoreError> {
        let dir = self.job_dir(&record.job)?;
        let put = files::put_bytes(&dir, &attempt_file(record.first), &record.to_bytes())?;
        Ok(put == RenameResult::Written)
    }

    /// Returns the names of the records of a job folder, `RUN` first.
    pub fn record_files(&self, job: &JobId) -> Result<Vec<String>, StoreError> {
        let names = files::names(&self.job_dir(job)?)?.unwrap_or_default();
        let mut records: Vec<String> = names
            .into_iter()
            .filter(|name| name == RUN_FILE || attempt_of(name).is_some())
            .collect();
        records.sort_unstable_by_key(|name| (name != RUN_FILE, attempt_of(name)));
        Ok(records)
    }

    /// Removes records of a claim that was abandoned.
    pub(crate) fn remove_records(&self, job: &JobId, names: &[String]) -> Result<(), StoreError> {
        let dir = self.job_dir(job)?;
        names.iter().try_for_each(|name| files::remove_file(&dir.join(name)))
    }

    fn read_record<T>(
        &self,
        job: &JobId,
        name: &str,
        parse: impl Fn(&[u8]) -> Result<T, RecordError>,
    ) -> Result<Option<T>, StoreError> {
        let path = self.job_dir(job)?.join(name);
        let bytes = match files::read(&path, MAX_RECORD_BYTES) {
            Ok(bytes) => bytes,
            Err(StoreError::Missing { .. }) => return Ok(None),
            Err(problem) => return Err(problem),
        };
        let problem = |problem| StoreError::Record { path, problem };
        parse(&bytes).map(Some).map_err(problem)
    }
}

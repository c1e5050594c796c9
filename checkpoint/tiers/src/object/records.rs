//! Run records in an object store: mirrored and pulled together with the checkpoints.

use futures_util::{StreamExt, TryStreamExt, stream};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{
    AttemptRecord, AttemptSet, MAX_RECORD_BYTES, RUN_FILE, RecordError, RunRecord, attempt_of, check_job,
};
use rankguard_checkpoint::store::ensure_folder_of;
use rankguard_model::JobId;

use super::pull::put_small;
use super::push::read_file;
use super::{ObjectError, ObjectLocation, ObjectTier};

impl ObjectTier {
    /// Mirrors the records of a job's run, `RUN` first. Refuses an object store that holds another run of the job.
    pub(super) async fn push_records(&self, store: &Store, job: &JobId) -> Result<(), ObjectError> {
        let dir = store.job_dir(job)?;
        for name in store.record_files(job)? {
            let bytes = read_file(&dir.join(&name))?;
            self.put_new(&self.record_place(job, &name)?, bytes).await?;
        }
        Ok(())
    }

    /// Copies the records of a job's run to a store on disk, `RUN` last, so a folder with a `RUN` has its attempts.
    pub(super) async fn pull_records(&self, job: &JobId, store: &Store) -> Result<(), ObjectError> {
        let dir = store.job_dir(job)?;
        let mut names = self.record_names(job).await?;
        names.sort_unstable_by_key(|name| (name == RUN_FILE, attempt_of(name)));
        for name in names {
            let place = self.record_place(job, &name)?;
            let bytes = self.read_small(&place, MAX_RECORD_BYTES).await?;
            let read = match attempt_of(&name) {
                Some(_) => AttemptRecord::from_bytes(&bytes).map(drop),
                None => RunRecord::from_bytes(&bytes).map(drop),
            };
            read.map_err(record_problem(&place))?;
            let path = dir.join(&name);
            ensure_folder_of(&path)?;
            put_small(&path, &bytes)?;
        }
        Ok(())
    }

    /// Returns the attempts of a job's run, which decide the checkpoints that count.
    pub async fn attempt_set(&self, job: &JobId) -> Result<AttemptSet, ObjectError> {
        let names = self.record_names(job).await?;
        let reads = stream::iter(names.into_iter().filter(|name| attempt_of(name).is_some())).map(|name| async move {
            let place = self.record_place(job, &name)?;
            let bytes = self.read_small(&place, MAX_RECORD_BYTES).await?;
            AttemptRecord::from_bytes(&bytes).map_err(record_problem(&place))
        });
        let records: Vec<AttemptRecord> = reads.buffered(self.requests()).try_collect().await?;
        Ok(AttemptSet::new(&records))
    }

    fn record_place(&self, job: &JobId, name: &str) -> Result<ObjectLocation, ObjectError> {
        check_job(job)?;
        Ok(ObjectLocation {
            path: self.base.clone().join(job.as_str()).join(name),
            url: format!("{}/{job}/{name}", self.url),
        })
    }

    async fn record_names(&self, job: &JobId) -> Result<Vec<String>, ObjectError> {
        check_job(job)?;
        let folder = self.base.clone().join(job.as_str());
        let url = format!("{}/{job}", self.url);
        let listed = self.store.list_with_delimiter(Some(&folder));
        let listed = match self.send_request("list", &url, listed).await {
            Err(ObjectError::Missing { .. }) => return Ok(Vec::new()),
            other => other?,
        };
        let names = listed.objects.iter().filter_map(|object| object.location.filename());
        let is_record = |name: &&str| *name == RUN_FILE || attempt_of(name).is_some();
        Ok(names.filter(is_record).map(ToOwned::to_owned).collect())
    }
}

fn record_problem(place: &ObjectLocation) -> impl FnOnce(RecordError) -> ObjectError {
    let url = place.url.clone();
    move |problem| ObjectError::Record { url, problem }
}

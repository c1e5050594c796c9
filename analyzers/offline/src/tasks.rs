//! Tasks of `srun` that are launchers: below a launcher with its own ranks, the number of a task is not a rank.

use rankguard_diagnosis::{Signal, SignalMeaning};
use rankguard_model::{Entity, FieldValues, JobId};

use crate::reading::JOB;
use crate::stream::PlacedObservation;

/// Start of `srun`'s reports of tasks.
const REPORT: &str = "srun: error: ";

/// Removes the rank from reports of tasks.
pub(crate) fn forget_task_ranks(seen: &mut [PlacedObservation]) {
    let signs = seen.iter_mut().flat_map(|seen| &mut seen.signs);
    signs.filter(|sign| is_report(sign)).for_each(forget_rank);
}

fn is_report(sign: &Signal) -> bool {
    sign.text.starts_with(REPORT) && sign.text.contains(": task")
}

fn forget_rank(sign: &mut Signal) {
    if let SignalMeaning::Mark(mark) = &mut sign.what {
        let mut fields = FieldValues::new();
        let others = mark.fields.iter().filter(|(name, _)| *name != "rank");
        others.for_each(|(name, value)| fields.insert(name, value));
        mark.fields = fields;
    }
    if matches!(sign.entity, Entity::Rank { .. }) {
        sign.entity = Entity::Job { job: JobId::from(JOB) };
    }
}

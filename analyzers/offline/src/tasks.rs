//! Tasks of `srun` that are launchers: below a launcher with its own ranks, the number of a task is not a rank.

use rankguard_diagnosis::{Sign, What};
use rankguard_model::{Entity, Fields, JobId};

use crate::reading::JOB;
use crate::stream::Seen;

/// Start of `srun`'s reports of tasks.
const REPORT: &str = "srun: error: ";

/// Removes the rank from reports of tasks.
pub(crate) fn forget_task_ranks(seen: &mut [Seen]) {
    let signs = seen.iter_mut().flat_map(|seen| &mut seen.signs);
    signs.filter(|sign| is_report(sign)).for_each(forget_rank);
}

fn is_report(sign: &Sign) -> bool {
    sign.text.starts_with(REPORT) && sign.text.contains(": task")
}

fn forget_rank(sign: &mut Sign) {
    if let What::Mark(mark) = &mut sign.what {
        let mut fields = Fields::new();
        let others = mark.fields.iter().filter(|(name, _)| *name != "rank");
        others.for_each(|(name, value)| fields.insert(name, value));
        mark.fields = fields;
    }
    if matches!(sign.entity, Entity::Rank { .. }) {
        sign.entity = Entity::Job { job: JobId::from(JOB) };
    }
}

//! Start of rank supervision: processes left by an earlier agent end before this one joins (RG-3).

use std::sync::Arc;
use std::time::Duration;

use rankguard_model::EvidenceSource;

use crate::error::AgentError;
use crate::intake::EvidenceIntake;
use crate::lease::RankLease;
use crate::processes::{CgroupBase, FenceMark, end_marked_processes};
use crate::ranks::{RankReports, RankUserRules};
use crate::settings::AgentSettings;
use crate::supervisor::{RankSupervisors, adopt_orphans};
use crate::views::RankRightsView;

/// Rank supervision of one agent.
pub(crate) struct RankSupervision {
    pub(crate) supervisors: RankSupervisors,
    pub(crate) mark: FenceMark,
    pub(crate) users: RankUserRules,
    pub(crate) view: RankRightsView,
}

impl RankSupervision {
    /// Ends the processes that an earlier agent of the state directory left, and prepares for ranks. The spool must be
    /// open: its lock prevents that a second agent of the directory ends the ranks of the first.
    pub(crate) fn start(
        settings: &AgentSettings,
        lease: RankLease,
        intake: &EvidenceIntake,
        reports: Arc<RankReports>,
    ) -> Result<Self, AgentError> {
        let failed = |source| AgentError::Supervision {
            path: settings.state_dir.clone(),
            source,
        };
        adopt_orphans();
        let mut mark = FenceMark::open(&settings.state_dir).map_err(failed)?;
        end_leftovers(&mark, settings.intervals.kill, intake);
        let created = if settings.rank_cgroups {
            CgroupBase::find(&mark.id)
        } else {
            Err("agent.rank_cgroups is off".to_owned())
        };
        let (cgroups, no_cgroup) = match created {
            Ok(base) => (Some(base), None),
            Err(problem) => (None, Some(problem)),
        };
        let used = cgroups.as_ref().map(|base| base.path().to_owned());
        if used != mark.cgroup {
            mark.cgroup = used;
            // A failure is harmless, because the mark identifies leftovers, too.
            if let Err(problem) = mark.write(&settings.state_dir) {
                tracing::warn!(%problem, "cannot record the control group of ranks");
            }
        }
        let users = RankUserRules::of(settings);
        let view = RankRightsView {
            user: settings.rank_user.clone(),
            are_separate: users.are_separate(),
            cgroup: mark.cgroup.clone(),
            lease_ms: u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX),
        };
        log_rights(&view, no_cgroup);
        let program = settings.supervisor_process.clone();
        let kill_limit = settings.intervals.kill;
        let supervisors = RankSupervisors::start(program, mark.clone(), cgroups, lease, kill_limit, reports);
        Ok(Self {
            supervisors: supervisors.map_err(|source| AgentError::Thread {
                part: "rank-lease",
                source,
            })?,
            mark,
            users,
            view,
        })
    }
}

/// Ends processes of an earlier agent, by control group and by mark.
fn end_leftovers(mark: &FenceMark, limit: Duration, intake: &EvidenceIntake) {
    let mut count = 0;
    if let Some(path) = &mark.cgroup {
        count += CgroupBase::end_left(path, &mark.id, limit).len();
    }
    let left = match end_marked_processes(mark, limit) {
        Some(ended) => {
            count += ended.count() as usize;
            ended.left_names()
        }
        None => vec!["unknown processes: reading their environment did not end".to_owned()],
    };
    if count > 0 {
        tracing::warn!(count, "ended processes that an earlier agent of this directory left");
    }
    if !left.is_empty() {
        let what = format!(
            "processes of an earlier agent cannot be ended and may still act: {}",
            left.join("; ")
        );
        tracing::error!("{what}");
        intake.gap(EvidenceSource::Agent, what, None);
    }
}

fn log_rights(view: &RankRightsView, no_cgroup: Option<String>) {
    if !view.are_separate {
        tracing::warn!(
            "ranks run as the agent's own user and can read its key and directory (set agent.rank_user, and run the agent as \
             root or with CAP_SETUID and CAP_SETGID)"
        );
    }
    if let Some(problem) = no_cgroup {
        tracing::info!(
            problem,
            "ranks get no control group; their processes are found by descent"
        );
    }
}

//! What is watched of a rank's process between its steps: whether anything can wake it, and children that it does not wait for.

use std::path::Path;
use std::time::{Duration, Instant};

use rankguard_model::{Body, RankRef, Role, Source};

use super::{Hangs, Seen};
use crate::collectors::{mark, sample};
use crate::sighting::Sighting;
use crate::stacks::Standing;

/// How long a rank is blocked before it is told: well below the kernel's own limit for hung tasks, 120 s.
const BLOCKED: Duration = Duration::from_secs(15);

/// A rank in uninterruptible sleep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sleep {
    since: Instant,
    /// Switches it has made; any further one shows that it was woken.
    switches: u64,
    told: bool,
}

impl Hangs {
    /// Tells of a rank that nothing has woken for a while.
    pub(super) fn sleepers(&self, seen: &mut Seen, rank: &RankRef, pid: u32, now: Instant) {
        let Some(switches) = blocked(&self.proc_root, pid) else {
            seen.blocked.remove(rank);
            return;
        };
        let fresh = Sleep {
            since: now,
            switches,
            told: false,
        };
        let sleep = seen.blocked.entry(rank.clone()).or_insert(fresh);
        if sleep.switches != switches {
            *sleep = fresh;
        }
        let lasts = now.saturating_duration_since(sleep.since);
        if lasts < BLOCKED || std::mem::replace(&mut sleep.told, true) {
            return;
        }
        let Some(standing) = Standing::of(&self.proc_root, pid) else {
            return;
        };
        let body = Body::Line {
            text: format!(
                "the rank is {standing} for {} s, and no signal reaches it",
                lasts.as_secs()
            ),
            context: standing.blocked.iter().map(ToString::to_string).collect(),
            repeats: 1,
        };
        let says = mark("hung-task", Role::Confirmation, 0.6, "ranks.blocked");
        let entity = self.roster.entity(rank);
        self.intake
            .push(Sighting::now(Source::Ranks, entity, body).marked(vec![says]));
    }

    /// Tells of children that were dead at two searches. Helpers that come and go are waited for in between.
    pub(super) fn children(&self, seen: &mut Seen, rank: &RankRef, pid: u32) {
        let dead = Standing::of(&self.proc_root, pid).map_or(0, |standing| standing.zombies);
        let (before, told) = seen.dead.entry(rank.clone()).or_default();
        let lasting = dead.min(*before);
        *before = dead;
        if lasting == 0 {
            *told = false;
        } else if !std::mem::replace(told, true) {
            let entity = self.roster.entity(rank);
            self.intake.push(sample(
                Source::Ranks,
                entity,
                "ranks.dead_children",
                lasting as f64,
                "count",
            ));
        }
    }
}

/// How often a process in uninterruptible sleep has gone to sleep; nothing when it is in another state.
fn blocked(proc_root: &Path, pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(proc_root.join(pid.to_string()).join("status")).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    field("State:").filter(|state| state.starts_with('D'))?;
    field("voluntary_ctxt_switches:")?.parse().ok()
}

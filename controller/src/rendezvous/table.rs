//! Table of all runs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rankguard_model::{Timestamp, TorchrunView};

use super::notice::{MemberDeparture, MemberNotice, NodeConditions, RefusalKind, RoundNotice, RoundRefusal};
use super::round::MemberId;
pub(crate) use super::run::JoinRequest;
use super::run::{RETURN_GRACE, RunState};

/// Runs at one time. A further one is refused.
const RUNS_MAX: usize = 256;
/// Runs of one certificate name at one time, so that one name cannot take the room of all others.
const OWNER_RUNS_MAX: usize = 64;
/// Members of a run at one time, and largest `nodes_max`. A further one is refused. A round goes to each of its members,
/// so its messages grow with the square of this number, to some 100 MB.
pub(crate) const MEMBERS_MAX: usize = 1_024;
/// Ended runs that are listed; the one that ended first is dropped.
const ENDED_MAX: usize = 64;
/// Time for which an ended run is listed.
const ENDED_LISTED: Duration = Duration::from_secs(86_400);
/// Largest round number that a member may state.
const NUMBER_MAX: u64 = 1 << 40;
/// Gap between two ticks from which on the controller counts as having stood still.
const LATE_TICK: Duration = Duration::from_secs(2);

/// Message to a member of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RunNotice {
    pub(crate) run: String,
    pub(crate) member: MemberId,
    pub(crate) notice: RoundNotice,
}

/// All runs, by name. Each method that receives a fact returns the messages that follow from it.
#[derive(Debug)]
pub(crate) struct RunTable {
    runs: BTreeMap<String, RunState>,
    /// Ended runs, the oldest first. A run that is opened again is removed.
    ended: VecDeque<TorchrunView>,
    nodes: NodeConditions,
    /// No round begins before.
    hold_until: Timestamp,
    ticked: Timestamp,
}

impl RunTable {
    /// Creates an empty table. After a restart of the controller, rounds are held back until members of a running round had
    /// time to state it.
    pub(crate) fn new(now: Timestamp, is_restart: bool) -> Self {
        let hold = if is_restart { RETURN_GRACE } else { Duration::ZERO };
        Self {
            runs: BTreeMap::new(),
            ended: VecDeque::new(),
            nodes: NodeConditions::new(),
            hold_until: now.after(hold),
            ticked: now,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn members(&self) -> usize {
        self.runs.values().map(RunState::members).sum()
    }

    /// Adds a member, or records that it is connected again; opens its run if there is none of this name.
    pub(crate) fn join(
        &mut self,
        now: Timestamp,
        name: &str,
        request: JoinRequest,
    ) -> Result<Vec<RunNotice>, RoundRefusal> {
        check(&request)?;
        let denied = |reason: String| Err(RoundRefusal::new(RefusalKind::Denied, reason));
        if let Some(run) = self.runs.get(name) {
            if let Some(refusal) = run.refusal(&request) {
                return Err(refusal);
            }
            if run.members() >= MEMBERS_MAX {
                return denied(format!("the run has {MEMBERS_MAX} torchrun processes already"));
            }
        } else if self.runs.len() >= RUNS_MAX {
            return denied(format!("the controller has {RUNS_MAX} runs already"));
        } else if let Some(owner) = &request.owner
            && self.runs.values().filter(|run| run.is_owned_by(owner)).count() >= OWNER_RUNS_MAX
        {
            return denied(format!("{owner} has {OWNER_RUNS_MAX} runs already"));
        }
        let hold_until = self.hold_until;
        let run = self
            .runs
            .entry(name.to_owned())
            .or_insert_with(|| RunState::open(&request, now, hold_until));
        let notices = run.join(now, request);
        self.ended.retain(|ended| ended.run != name);
        Ok(self.settle(now, name, notices))
    }

    pub(crate) fn request(&mut self, now: Timestamp, name: &str, id: MemberId, store_port: u16) -> Vec<RunNotice> {
        self.act(now, name, |run| run.request(now, id, store_port))
    }

    pub(crate) fn finish(&mut self, now: Timestamp, name: &str, id: MemberId) -> Vec<RunNotice> {
        self.act(now, name, |run| {
            run.finish(id);
            Vec::new()
        })
    }

    pub(crate) fn leave(
        &mut self,
        now: Timestamp,
        name: &str,
        id: MemberId,
        departure: MemberDeparture,
    ) -> Vec<RunNotice> {
        self.act(now, name, |run| run.leave(now, id, departure))
    }

    pub(crate) fn disconnect(&mut self, now: Timestamp, name: &str, id: MemberId) -> Vec<RunNotice> {
        self.act(now, name, |run| {
            run.disconnect(now, id);
            Vec::new()
        })
    }

    pub(crate) fn close(&mut self, now: Timestamp, name: &str, reason: String) -> Vec<RunNotice> {
        self.act(now, name, |run| run.close(now, reason))
    }

    /// Replaces the conditions of the nodes.
    pub(crate) fn set_nodes(&mut self, now: Timestamp, nodes: NodeConditions) -> Vec<RunNotice> {
        self.nodes = nodes;
        self.advance_all(now)
    }

    /// Takes the decisions that depend on the time. Called several times a second.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Vec<RunNotice> {
        if now.since(self.ticked) > LATE_TICK {
            self.runs.values_mut().for_each(|run| run.extend_grace(now));
        }
        self.ticked = now;
        let is_listed = |ended: &TorchrunView| ended.ended_at.is_some_and(|at| now.since(at) < ENDED_LISTED);
        self.ended.retain(is_listed);
        self.advance_all(now)
    }

    /// Returns the runs and the ended ones, by name.
    pub(crate) fn views(&self) -> Vec<TorchrunView> {
        let runs = self.runs.iter().map(|(name, run)| run.view(name, &self.nodes));
        let mut views: Vec<TorchrunView> = runs.chain(self.ended.iter().cloned()).collect();
        views.sort_by(|a, b| a.run.cmp(&b.run));
        views
    }

    fn advance_all(&mut self, now: Timestamp) -> Vec<RunNotice> {
        let names: Vec<String> = self.runs.keys().cloned().collect();
        let settled = names.iter().flat_map(|name| self.settle(now, name, Vec::new()));
        settled.collect()
    }

    fn act(
        &mut self,
        now: Timestamp,
        name: &str,
        change: impl FnOnce(&mut RunState) -> Vec<MemberNotice>,
    ) -> Vec<RunNotice> {
        let Some(run) = self.runs.get_mut(name) else {
            return Vec::new();
        };
        let notices = change(run);
        self.settle(now, name, notices)
    }

    /// Advances a run after a change, and removes it if it has no members.
    fn settle(&mut self, now: Timestamp, name: &str, mut notices: Vec<MemberNotice>) -> Vec<RunNotice> {
        if let Some(run) = self.runs.get_mut(name) {
            notices.extend(run.advance(now, &self.nodes));
            if run.is_empty() {
                let ended = run.ended_view(name, now);
                self.runs.remove(name);
                if self.ended.len() >= ENDED_MAX {
                    self.ended.pop_front();
                }
                self.ended.push_back(ended);
            }
        }
        let addressed = notices.into_iter().map(|(member, notice)| RunNotice {
            run: name.to_owned(),
            member,
            notice,
        });
        addressed.collect()
    }
}

/// Checks the numbers of a request.
fn check(request: &JoinRequest) -> Result<(), RoundRefusal> {
    let denied = |reason: String| Err(RoundRefusal::new(RefusalKind::Denied, reason));
    let (min, max) = (request.terms.nodes_min, request.terms.nodes_max);
    if min < 1 || min > max || max > MEMBERS_MAX {
        return denied(format!(
            "--nnodes {min}:{max} is not a range of 1 to {MEMBERS_MAX} nodes"
        ));
    }
    let Some(round) = &request.round else { return Ok(()) };
    let ids: std::collections::BTreeSet<MemberId> = round.members.iter().map(|seat| seat.id).collect();
    if round.number < 1 || round.number > NUMBER_MAX || ids.len() != round.members.len() || ids.len() > max {
        return denied(format!("round {} is not a round of this run", round.number));
    }
    if !ids.contains(&request.id) {
        return denied(format!("round {} does not have this torchrun", round.number));
    }
    Ok(())
}

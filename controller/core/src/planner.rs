//! Planner: compares the recovery options of a failure by their expected cost, and chooses the cheapest that suffices.
//!
//! The planner is a pure function of [`PlannerInput`]. It counts nodes and does not know them: a node of the job, or a
//! spare, is clean or has a known fault. Costs are in node-milliseconds without useful work, against the same full size
//! for all options:
//!
//! | part | cost |
//! |---|---|
//! | wait | full size x expected wait until the lost nodes return, at most until the deadline |
//! | restart | full size x restart time of the kind of plan |
//! | repeated | full size x time since the last committed checkpoint |
//! | capacity | missing nodes x time until they are back; clean nodes that are free are back after the growth delay, lost ones after their expected absence and the growth delay, others not within the horizon |
//! | growth | full size x restart time of the growth, with the probability that nodes come back within the horizon |
//! | recurrence | full size x (restart time and repeated work), with the probability that a node with a known fault fails again |
//!
//! The horizon is the expected time to the next failure of the job, because the next failure plans anew. A wait is an
//! option only on measured absences ([`RETURNS_MIN`]): assumptions alone leave no nodes idle. It has a deadline, the
//! one with the lowest expected cost, and is chosen at most once for a failure.
//!
//! Simplifications: every clean node of the job is used again, and faulty spares only beside all clean ones; lost nodes return independently; nodes are equal; a spare
//! restores as fast as a node of the job until a restart with a spare has been measured.

pub(crate) mod restarts;
pub(crate) mod returns;

#[cfg(test)]
mod tests;

use crate::counted_nouns::count_are;
use rankguard_model::{NodeRange, OptionOutcome, RecoveryCost, RecoveryKind, RecoveryOption};

use returns::{RETURNS_MIN, ReturnForecast};

/// Assumed probability that a node with a known fault of its hardware fails again before the horizon.
pub(crate) const ASSUMED_RECURRENCE: f64 = 0.5;

/// Usable nodes by known fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NodeCounts {
    pub(crate) clean: u32,
    /// Nodes with a known fault that are not cordoned ([`crate::DecisionState::has_known_fault`]).
    pub(crate) faulty: u32,
}

/// Restart times by kind of plan, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RestartTimes {
    pub(crate) in_place: u64,
    pub(crate) swap: u64,
    pub(crate) shrink: u64,
    pub(crate) grow: u64,
}

impl RestartTimes {
    fn of(&self, kind: RecoveryKind) -> u64 {
        match kind {
            RecoveryKind::RestartInPlace | RecoveryKind::Wait => self.in_place,
            RecoveryKind::SwapSpare => self.swap,
            RecoveryKind::Shrink => self.shrink,
            RecoveryKind::Grow => self.grow,
            RecoveryKind::Stop => 0,
        }
    }
}

/// State of a job and of the cluster after a failure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannerInput {
    /// Numbers of nodes that the job permits.
    pub(crate) range: NodeRange,
    /// True if a reason counts the nodes of the job apart from free ones (since rules 9).
    pub(crate) names_own_nodes: bool,
    /// Reason for which its checkpoint permits only the size before the failure; absent if it permits any.
    pub(crate) required_size: Option<String>,
    /// Number of nodes before the failure.
    pub(crate) before: u32,
    /// Usable nodes of the job.
    pub(crate) own: NodeCounts,
    /// Usable nodes without a job.
    pub(crate) spare: NodeCounts,
    /// Lost nodes of the job that may return.
    pub(crate) awaited: u32,
    pub(crate) restart: RestartTimes,
    /// Work since the last committed checkpoint, milliseconds.
    pub(crate) repeated_ms: u64,
    /// Work that a later growth repeats, milliseconds: none if it follows a checkpoint.
    pub(crate) repeated_by_growth_ms: u64,
    /// Expected return of one lost node.
    pub(crate) returns: ReturnForecast,
    /// Expected time to the next failure of the job, milliseconds.
    pub(crate) horizon_ms: u64,
    /// Time from the return of a node to the growth onto it, milliseconds.
    pub(crate) growth_delay_ms: u64,
    /// Longest wait for nodes, milliseconds.
    pub(crate) wait_limit_ms: u64,
    /// True if the job has waited for this failure already.
    pub(crate) has_waited: bool,
}

/// Nodes of a plan by origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Placement {
    pub(crate) own_clean: u32,
    pub(crate) own_faulty: u32,
    pub(crate) spare_clean: u32,
    pub(crate) spare_faulty: u32,
}

impl Placement {
    pub(crate) fn nodes(&self) -> u32 {
        self.own_clean + self.own_faulty + self.spare_clean + self.spare_faulty
    }

    fn faulty(&self) -> u32 {
        self.own_faulty + self.spare_faulty
    }

    fn moves(&self) -> u32 {
        self.spare_clean + self.spare_faulty
    }
}

/// Recovery that the planner chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChosenRecovery {
    /// Start on these nodes.
    Place(Placement),
    /// Wait at most so many milliseconds for the lost nodes, then plan again.
    AwaitReturn { wait_ms: u64 },
    /// Too few nodes can be used: wait for any nodes.
    AwaitNodes,
}

/// Choice with the options that were compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannerChoice {
    pub(crate) recovery: ChosenRecovery,
    pub(crate) options: Vec<RecoveryOption>,
    /// Size against which capacity is counted.
    pub(crate) nodes_full: u32,
}

/// Available option.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    kind: RecoveryKind,
    nodes: u32,
    wait_ms: u64,
    moves: u32,
    cost: RecoveryCost,
    recovery: ChosenRecovery,
}

impl Candidate {
    /// Returns the order of preference: lowest cost, no wait, fewest moves, kind.
    fn rank(&self) -> (u64, bool, u32, RecoveryKind, u64) {
        let is_wait = self.kind == RecoveryKind::Wait;
        (self.cost.total(), is_wait, self.moves, self.kind, self.wait_ms)
    }
}

/// Compares the options and returns the cheapest that suffices.
pub(crate) fn choose(input: &PlannerInput) -> PlannerChoice {
    let full = input.full_size();
    let mut candidates = input.placements(full);
    let has_placement = !candidates.is_empty();
    candidates.extend(input.best_wait(full));
    let chosen = candidates.iter().min_by_key(|candidate| candidate.rank()).copied();
    let kinds = [
        RecoveryKind::RestartInPlace,
        RecoveryKind::SwapSpare,
        RecoveryKind::Shrink,
        RecoveryKind::Grow,
        RecoveryKind::Wait,
    ];
    let is_only = candidates
        .iter()
        .all(|candidate| Some(candidate.kind) == chosen.map(|chosen| chosen.kind));
    let option = |kind: RecoveryKind| {
        let of_kind = candidates.iter().filter(|candidate| candidate.kind == kind);
        let Some(best) = of_kind.min_by_key(|candidate| candidate.rank()) else {
            return unavailable(kind, input.obstacle(kind));
        };
        let is_chosen = chosen.is_some_and(|chosen| chosen.kind == kind);
        let (outcome, reason) = match chosen {
            _ if is_chosen && !has_placement => (
                OptionOutcome::Chosen,
                "too few nodes can be used; the job is stopped if they do not come".to_owned(),
            ),
            _ if is_chosen && is_only => (OptionOutcome::Chosen, "the only option that suffices".to_owned()),
            _ if is_chosen => (OptionOutcome::Chosen, "lowest expected cost".to_owned()),
            Some(chosen) if chosen.cost.total() == best.cost.total() => {
                (OptionOutcome::Costlier, "costs as much, and moves more".to_owned())
            }
            _ => (OptionOutcome::Costlier, "higher expected cost".to_owned()),
        };
        RecoveryOption {
            kind,
            nodes: best.nodes,
            wait_ms: best.wait_ms,
            outcome,
            reason,
            cost: Some(best.cost),
        }
    };
    let mut options: Vec<RecoveryOption> = kinds.into_iter().map(option).collect();
    options.push(unavailable(
        RecoveryKind::Stop,
        "the failure may not return after a restart".to_owned(),
    ));
    PlannerChoice {
        recovery: chosen.map_or(ChosenRecovery::AwaitNodes, |chosen| chosen.recovery),
        options,
        nodes_full: full,
    }
}

/// Returns the options of a failure for which the job is stopped.
pub(crate) fn stop(reason: &str) -> Vec<RecoveryOption> {
    vec![
        unavailable(RecoveryKind::RestartInPlace, reason.to_owned()),
        RecoveryOption {
            kind: RecoveryKind::Stop,
            nodes: 0,
            wait_ms: 0,
            outcome: OptionOutcome::Chosen,
            reason: "a restart does not suffice".to_owned(),
            cost: None,
        },
    ]
}

fn unavailable(kind: RecoveryKind, reason: String) -> RecoveryOption {
    RecoveryOption {
        kind,
        nodes: 0,
        wait_ms: 0,
        outcome: OptionOutcome::Unavailable,
        reason,
        cost: None,
    }
}

impl PlannerInput {
    fn clean(&self) -> u32 {
        self.own.clean + self.spare.clean
    }

    /// Returns the size against which capacity is counted: that before the failure, or a larger one that clean nodes permit.
    pub(crate) fn full_size(&self) -> u32 {
        self.before.max(self.clean()).min(self.range.max)
    }

    /// Returns the placements that may have the lowest cost, each with its cost. Every clean node of the job is used. The
    /// cost is linear or concave in the number of spares within one kind, so that the limits of the kinds suffice.
    fn placements(&self, full: u32) -> Vec<Candidate> {
        let sizes = [
            self.range.min,
            self.before.saturating_sub(1),
            self.before,
            self.range.max,
        ];
        let own_clean = self.own.clean.min(self.range.max);
        let mut placements = Vec::new();
        for own_faulty in 0..=self.own.faulty {
            let base = own_clean + own_faulty;
            if base > self.range.max {
                break;
            }
            for size in [base].into_iter().chain(sizes) {
                let spares = size.saturating_sub(base);
                let spare_clean = spares.min(self.spare.clean);
                placements.push(Placement {
                    own_clean,
                    own_faulty,
                    spare_clean,
                    spare_faulty: (spares - spare_clean).min(self.spare.faulty),
                });
                placements.push(Placement {
                    own_clean,
                    own_faulty,
                    spare_clean,
                    spare_faulty: 0,
                });
            }
        }
        let is_allowed = |placement: &Placement| (self.range.min..=self.range.max).contains(&placement.nodes());
        let allowed = placements.into_iter().filter(is_allowed);
        allowed.map(|placement| self.candidate(placement, full)).collect()
    }

    fn candidate(&self, placement: Placement, full: u32) -> Candidate {
        Candidate {
            kind: self.kind_of(&placement),
            nodes: placement.nodes(),
            wait_ms: 0,
            moves: placement.moves(),
            cost: self.cost(&placement, full),
            recovery: ChosenRecovery::Place(placement),
        }
    }

    fn kind_of(&self, placement: &Placement) -> RecoveryKind {
        match placement.nodes().cmp(&self.before) {
            std::cmp::Ordering::Less => RecoveryKind::Shrink,
            std::cmp::Ordering::Greater => RecoveryKind::Grow,
            std::cmp::Ordering::Equal if placement.moves() == 0 => RecoveryKind::RestartInPlace,
            std::cmp::Ordering::Equal => RecoveryKind::SwapSpare,
        }
    }

    /// Returns the expected cost of an immediate start on these nodes.
    pub(crate) fn cost(&self, placement: &Placement, full: u32) -> RecoveryCost {
        let restart_ms = self.restart.of(self.kind_of(placement));
        let missing = full.saturating_sub(placement.nodes());
        let unused = self.clean().saturating_sub(placement.own_clean + placement.spare_clean);
        let soon = missing.min(unused);
        let late = (missing - soon).min(self.awaited);
        let gone = missing - soon - late;
        let horizon = self.horizon_ms;
        let soon_ms = self.growth_delay_ms.min(horizon);
        let within = horizon.saturating_sub(self.growth_delay_ms);
        let late_ms = self.returns.expected_ms(within) + soon_ms as f64;
        let capacity = f64::from(soon) * soon_ms as f64 + f64::from(late) * late_ms + f64::from(gone) * horizon as f64;
        let all_back = self.returns.of_all(late);
        let growths = f64::from(u8::from(soon > 0)) + if late > 0 { all_back.probability_by(within) } else { 0.0 };
        let growth_ms = self.restart.grow.saturating_add(self.repeated_by_growth_ms);
        let again_ms = restart_ms.saturating_add(self.repeated_ms);
        let full = f64::from(full);
        RecoveryCost {
            wait: 0,
            restart: rounded(full * restart_ms as f64),
            repeated: rounded(full * self.repeated_ms as f64),
            capacity: rounded(capacity),
            growth: rounded(growths * full * growth_ms as f64),
            recurrence: rounded(recurrence(placement.faulty()) * full * again_ms as f64),
        }
    }

    fn best_placement(&self, full: u32) -> Option<Candidate> {
        self.placements(full).into_iter().min_by_key(Candidate::rank)
    }

    /// Returns the wait with the lowest expected cost; `None` if the job does not wait.
    fn best_wait(&self, full: u32) -> Option<Candidate> {
        let Some(now) = self.best_placement(full) else {
            return Some(self.wait_for_any_nodes(full));
        };
        if !self.may_wait() {
            return None;
        }
        // The expected cost has its minimum at a time at which a node may return.
        let returns = self.returns.of_all(self.awaited);
        let deadlines = returns.steps.iter().map(|(at, _)| *at);
        let waits = deadlines
            .filter(|at| *at <= self.wait_limit_ms)
            .filter_map(|at| self.wait_until(at, full, &now));
        waits.min_by_key(Candidate::rank)
    }

    fn may_wait(&self) -> bool {
        self.awaited > 0 && !self.has_waited && self.returns.is_measured()
    }

    /// Returns the option to wait for all lost nodes until a deadline, and to start without them then.
    pub(crate) fn wait_cost(&self, wait_ms: u64, full: u32) -> Option<RecoveryCost> {
        let back = Self {
            own: NodeCounts {
                clean: self.own.clean + self.awaited,
                ..self.own
            },
            awaited: 0,
            ..self.clone()
        };
        let late = Self {
            returns: self.returns.after(wait_ms),
            ..self.clone()
        };
        let back = back.best_placement(full)?.cost;
        let late = late.best_placement(full)?.cost;
        let returns = self.returns.of_all(self.awaited);
        let probability = returns.probability_by(wait_ms);
        let mixed = |back: u64, late: u64| rounded(probability * back as f64 + (1.0 - probability) * late as f64);
        Some(RecoveryCost {
            wait: rounded(f64::from(full) * returns.expected_ms(wait_ms)),
            restart: mixed(back.restart, late.restart),
            repeated: mixed(back.repeated, late.repeated),
            capacity: mixed(back.capacity, late.capacity),
            growth: mixed(back.growth, late.growth),
            recurrence: mixed(back.recurrence, late.recurrence),
        })
    }

    fn wait_until(&self, wait_ms: u64, full: u32, now: &Candidate) -> Option<Candidate> {
        Some(Candidate {
            kind: RecoveryKind::Wait,
            nodes: self.before.max(now.nodes),
            wait_ms,
            moves: 0,
            cost: self.wait_cost(wait_ms, full)?,
            recovery: ChosenRecovery::AwaitReturn { wait_ms },
        })
    }

    /// Returns the wait of a job that cannot start on the usable nodes.
    fn wait_for_any_nodes(&self, full: u32) -> Candidate {
        let restart = f64::from(full) * self.restart.in_place as f64;
        Candidate {
            kind: RecoveryKind::Wait,
            nodes: self.before,
            wait_ms: self.wait_limit_ms,
            moves: 0,
            cost: RecoveryCost {
                wait: rounded(f64::from(full) * self.returns.expected_ms(self.wait_limit_ms)),
                restart: rounded(restart),
                repeated: rounded(f64::from(full) * self.repeated_ms as f64),
                ..RecoveryCost::default()
            },
            recovery: ChosenRecovery::AwaitNodes,
        }
    }

    /// Returns the reason why an option of a kind is not available.
    fn obstacle(&self, kind: RecoveryKind) -> String {
        let changes_size = matches!(kind, RecoveryKind::Shrink | RecoveryKind::Grow);
        if let Some(reason) = self.required_size.as_ref().filter(|_| changes_size) {
            return reason.clone();
        }
        let own = self.own.clean + self.own.faulty;
        let spare = self.spare.clean + self.spare.faulty;
        let lost = self.before.saturating_sub(own);
        match kind {
            RecoveryKind::RestartInPlace => format!("{lost} of its {} nodes cannot be used", self.before),
            RecoveryKind::SwapSpare if spare == 0 => "no spare node is free".to_owned(),
            RecoveryKind::SwapSpare if lost > 0 => format!(
                "{} missing and {} free",
                count_are(lost, "node"),
                count_are(spare, "spare node")
            ),
            RecoveryKind::SwapSpare | RecoveryKind::Shrink if lost == 0 => "no node has to leave".to_owned(),
            RecoveryKind::Shrink | RecoveryKind::SwapSpare => {
                let whose = if self.names_own_nodes { " of its own" } else { "" };
                format!(
                    "the job needs at least {} nodes and {own}{whose} can be used",
                    self.range.min
                )
            }
            RecoveryKind::Grow if self.before >= self.range.max => "the job had its largest size".to_owned(),
            RecoveryKind::Grow => "no further node is free".to_owned(),
            RecoveryKind::Wait if self.awaited == 0 => "no node of the job is expected to return".to_owned(),
            RecoveryKind::Wait if self.has_waited => "the job has waited for this failure already".to_owned(),
            RecoveryKind::Wait if !self.returns.is_measured() => format!(
                "{}, and a wait needs {RETURNS_MIN}",
                measured_returns(self.returns.measured)
            ),
            RecoveryKind::Wait => "no return is expected within the longest wait for nodes".to_owned(),
            RecoveryKind::Stop => String::new(),
        }
    }
}

/// Formats the number of measured returns of nodes.
pub(crate) fn measured_returns(number: usize) -> String {
    let verb = if number == 1 { "has" } else { "have" };
    let noun = if number == 1 { "return" } else { "returns" };
    format!("{number} {noun} of nodes {verb} been measured")
}

/// Returns the probability that at least one of some nodes with a known fault fails again.
fn recurrence(faulty: u32) -> f64 {
    // Beyond 64 nodes the probability is 1 in the precision of the type.
    let none = (0..faulty.min(64)).fold(1.0, |product, _| product * (1.0 - ASSUMED_RECURRENCE));
    1.0 - none
}

fn rounded(node_ms: f64) -> u64 {
    node_ms.round() as u64
}

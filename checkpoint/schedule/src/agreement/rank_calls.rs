//! Rank side of the agreement: decides at which step boundaries the rank takes an image.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{CheckpointCall, Generation, Step};

use super::CheckpointCallMessage;

/// Maximum number of called steps that a rank retains; a further call is answered as too late.
pub const MAX_CALLED: usize = 16;

/// Maximum number of past images that a rank retains, so that a repeated call does not count as missed.
const MAX_TAKEN: usize = 64;

/// Response of a rank to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResponse {
    /// The rank will take part.
    InTime,
    /// The call is a duplicate, or a later rule is known.
    Known,
    /// The rank will not take part: the step has passed, or [`MAX_CALLED`] is reached. The caller must report this to
    /// the controller.
    TooLate {
        /// Step of which the rank takes no image.
        step: Step,
    },
    /// The call is for another generation.
    Foreign,
}

/// Decision at the end of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoundaryDecision {
    /// True if the rank must take an image now.
    pub image: bool,
    /// Called steps that were skipped; the rank takes no image of them. The caller must report them to the controller.
    pub missed: Vec<Step>,
}

/// Calls and rules that one rank of one generation has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankCallState {
    generation: Generation,
    /// Newest boundary that was decided.
    passed: Step,
    /// Rules by first step, each as (call number, steps between checkpoints); the first is in force.
    rules: BTreeMap<Step, (u64, u64)>,
    /// Called single steps, each with its call number.
    called: BTreeMap<Step, u64>,
    /// Newest steps of which the rank took an image.
    taken: BTreeSet<Step>,
}

impl RankCallState {
    /// Creates the state of a rank that continues from the end of step `start`, with the launch rule: a checkpoint
    /// every `every` steps, or none if 0.
    pub fn new(generation: Generation, start: Step, every: u64) -> Self {
        Self {
            generation,
            passed: start,
            rules: BTreeMap::from([(Step(0), (0, every))]),
            called: BTreeMap::new(),
            taken: BTreeSet::new(),
        }
    }

    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Processes a call from the controller.
    pub fn accept_call(&mut self, word: &CheckpointCallMessage) -> CallResponse {
        if word.generation != self.generation {
            return CallResponse::Foreign;
        }
        match word.call {
            CheckpointCall::At { step } => self.accept_step(step, word.number),
            CheckpointCall::Every { from, every } => self.accept_rule(from, every, word.number),
        }
    }

    fn accept_step(&mut self, step: Step, number: u64) -> CallResponse {
        if self.called.contains_key(&step) || self.taken.contains(&step) {
            return CallResponse::Known;
        }
        if step <= self.passed || self.called.len() >= MAX_CALLED {
            return CallResponse::TooLate { step };
        }
        self.called.insert(step, number);
        CallResponse::InTime
    }

    /// A later rule replaces every earlier one that would begin at its step or after. A late rule applies immediately:
    /// attempts of this rank are void until its rule agrees with that of the others, with no other effect.
    fn accept_rule(&mut self, from: Step, every: u64, number: u64) -> CallResponse {
        if self.rules.values().any(|(known, _)| *known >= number) {
            return CallResponse::Known;
        }
        self.rules.retain(|begins, _| *begins < from || *begins <= self.passed);
        let late = from <= self.passed;
        if late {
            self.rules.clear();
        }
        self.rules.insert(from, (number, every));
        if late {
            CallResponse::TooLate { step: from }
        } else {
            CallResponse::InTime
        }
    }

    /// Decides the boundary after `step` completed steps. Each boundary is decided once: for an earlier one the result
    /// is no image.
    pub fn decide_boundary(&mut self, step: Step) -> BoundaryDecision {
        if step <= self.passed {
            return BoundaryDecision::default();
        }
        self.passed = step;
        let later = self.called.split_off(&Step(step.0.saturating_add(1)));
        let mut reached = std::mem::replace(&mut self.called, later);
        let called = reached.remove(&step).is_some();
        // Drop rules that are no longer in force.
        if let Some(holds) = self.rules.range(..=step).next_back().map(|(begins, _)| *begins) {
            self.rules = self.rules.split_off(&holds);
        }
        let every = self
            .rules
            .range(..=step)
            .next_back()
            .map_or(0, |(_, (_, every))| *every);
        let image = called || (every > 0 && step.0.is_multiple_of(every));
        if image {
            if self.taken.len() >= MAX_TAKEN {
                self.taken.pop_first();
            }
            self.taken.insert(step);
        }
        BoundaryDecision {
            image,
            missed: reached.into_keys().collect(),
        }
    }

    /// True if the rank would take an image at the end of this step, given the calls received so far.
    pub fn expects(&self, step: Step) -> bool {
        self.clone().decide_boundary(step).image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64, step: u64) -> CheckpointCallMessage {
        let call = CheckpointCall::At { step: Step(step) };
        CheckpointCallMessage {
            generation: Generation(1),
            number,
            call,
        }
    }

    fn every(number: u64, from: u64, every: u64) -> CheckpointCallMessage {
        let call = CheckpointCall::Every {
            from: Step(from),
            every,
        };
        CheckpointCallMessage {
            generation: Generation(1),
            number,
            call,
        }
    }

    fn images(follower: &mut RankCallState, steps: std::ops::RangeInclusive<u64>) -> Vec<u64> {
        steps
            .filter(|step| follower.decide_boundary(Step(*step)).image)
            .collect()
    }

    #[test]
    fn the_rule_of_the_launch_holds_without_a_word() {
        let mut follower = RankCallState::new(Generation(1), Step(0), 4);
        assert_eq!(images(&mut follower, 1..=10), [4, 8]);
        assert_eq!(images(&mut RankCallState::new(Generation(1), Step(4), 0), 5..=100), []);
    }

    #[test]
    fn a_call_in_time_is_kept_and_one_too_late_is_refused() {
        let mut follower = RankCallState::new(Generation(1), Step(0), 0);
        assert_eq!(follower.accept_call(&at(1, 5)), CallResponse::InTime);
        assert_eq!(follower.accept_call(&at(1, 5)), CallResponse::Known);
        assert!(follower.expects(Step(5)) && !follower.expects(Step(6)));
        assert_eq!(images(&mut follower, 1..=7), [5]);
        // A repeated call after the image was taken: nothing was missed.
        assert_eq!(follower.accept_call(&at(1, 5)), CallResponse::Known);
        assert_eq!(follower.accept_call(&at(2, 7)), CallResponse::TooLate { step: Step(7) });
        let foreign = CheckpointCallMessage {
            generation: Generation(2),
            ..at(3, 50)
        };
        assert_eq!(follower.accept_call(&foreign), CallResponse::Foreign);
    }

    #[test]
    fn a_step_that_was_jumped_over_is_missed_and_never_taken_at_another() {
        let mut follower = RankCallState::new(Generation(1), Step(0), 0);
        follower.accept_call(&at(1, 5));
        follower.accept_call(&at(2, 6));
        assert_eq!(
            follower.decide_boundary(Step(6)),
            BoundaryDecision {
                image: true,
                missed: vec![Step(5)]
            }
        );
        assert_eq!(follower.decide_boundary(Step(6)), BoundaryDecision::default());
        assert_eq!(follower.decide_boundary(Step(5)), BoundaryDecision::default());
    }

    #[test]
    fn a_later_rule_holds_from_its_step_whatever_order_they_come_in() {
        let hear = |words: &[CheckpointCallMessage]| {
            let mut follower = RankCallState::new(Generation(1), Step(0), 10);
            words.iter().for_each(|word| {
                follower.accept_call(word);
            });
            images(&mut follower, 1..=60)
        };
        assert_eq!(
            hear(&[every(1, 25, 5), every(2, 41, 7)]),
            [10, 20, 25, 30, 35, 40, 42, 49, 56]
        );
        // The earlier rule that arrives after the later one is ignored.
        assert_eq!(hear(&[every(2, 41, 7), every(1, 25, 5)]), [10, 20, 30, 40, 42, 49, 56]);
        // A later rule that begins earlier replaces the other.
        assert_eq!(hear(&[every(1, 41, 7), every(2, 25, 20)]), [10, 20, 40, 60]);
    }

    #[test]
    fn a_rule_that_comes_late_holds_from_now_on() {
        let mut follower = RankCallState::new(Generation(1), Step(0), 10);
        assert_eq!(images(&mut follower, 1..=32), [10, 20, 30]);
        assert_eq!(
            follower.accept_call(&every(1, 30, 4)),
            CallResponse::TooLate { step: Step(30) }
        );
        assert_eq!(images(&mut follower, 33..=41), [36, 40]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut follower = RankCallState::new(Generation(1), Step(0), 0);
        for step in 1..=MAX_CALLED as u64 {
            assert_eq!(follower.accept_call(&at(step, step)), CallResponse::InTime);
        }
        assert_eq!(
            follower.accept_call(&at(99, 99)),
            CallResponse::TooLate { step: Step(99) }
        );
        for number in 1..1_000 {
            follower.accept_call(&every(number, 2_000 - number, 3));
        }
        assert!(follower.rules.len() <= 2, "{:?}", follower.rules);
    }
}

//! Steps at which this rank takes an image, and calls that it missed.

use std::collections::BTreeSet;

use rankguard_checkpoint_schedule::agreement::{CallResponse, CheckpointCallMessage, RankCallState};
use rankguard_model::{CheckpointCall, Generation, Step};

/// Checkpoint calls that a rank has received.
#[derive(Debug)]
pub(crate) struct CheckpointCalls {
    follower: RankCallState,
    /// Newest step that was queried, and the answer, so that a repeated query returns the same.
    asked: Option<(Step, bool)>,
    /// Called steps that were accepted and still lack an image.
    promised: BTreeSet<Step>,
}

impl CheckpointCalls {
    /// Creates the calls of a rank that continues from the end of step `start`, with the rule of its launch.
    pub(crate) fn new(generation: Generation, start: Step, every: u64) -> Self {
        Self {
            follower: RankCallState::new(generation, start, every),
            asked: None,
            promised: BTreeSet::new(),
        }
    }

    /// Receives a call; returns the step of which no image will be taken.
    pub(crate) fn receive_call(&mut self, number: u64, call: CheckpointCall) -> Option<Step> {
        let generation = self.follower.generation();
        let accepted = self.follower.accept_call(&CheckpointCallMessage {
            generation,
            number,
            call,
        });
        match (accepted, call) {
            // A late change of the rule costs attempts between the old and the new one; those are void without a
            // report.
            (CallResponse::TooLate { step }, CheckpointCall::At { .. }) => Some(step),
            (CallResponse::InTime, CheckpointCall::At { step }) => {
                self.promised.insert(step);
                None
            }
            _ => None,
        }
    }

    /// Returns true if an image is due at the end of this step.
    pub(crate) fn due(&mut self, step: Step) -> bool {
        if let Some((asked, image)) = self.asked
            && asked == step
        {
            return image;
        }
        let image = self.follower.decide_boundary(step).image;
        self.asked = Some((step, image));
        image
    }

    /// Records that an image of this step was taken.
    pub(crate) fn taken(&mut self, step: Step) {
        self.promised.remove(&step);
    }

    /// Returns the called steps before this one of which no image was taken; each only once.
    pub(crate) fn missed(&mut self, before: Step) -> BTreeSet<Step> {
        let later = self.promised.split_off(&before);
        std::mem::replace(&mut self.promised, later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(step: u64) -> CheckpointCall {
        CheckpointCall::At { step: Step(step) }
    }

    #[test]
    fn a_called_step_is_due_besides_the_rule_and_kept_by_its_image() {
        let mut calls = CheckpointCalls::new(Generation(1), Step(0), 5);
        assert_eq!(calls.receive_call(1, at(7)), None);
        let due: Vec<u64> = (1..=10)
            .filter(|step| calls.due(Step(*step)) && calls.due(Step(*step)))
            .collect();
        assert_eq!(due, [5, 7, 10]);
        calls.taken(Step(7));
        assert_eq!(calls.missed(Step(11)), BTreeSet::new());
        assert_eq!(calls.receive_call(2, at(10)), None, "it was taken by the rule");
        assert_eq!(calls.receive_call(3, at(9)), Some(Step(9)), "it lies behind");
    }

    #[test]
    fn a_promise_that_was_not_kept_is_told_once() {
        let mut calls = CheckpointCalls::new(Generation(1), Step(0), 0);
        calls.receive_call(1, at(3));
        calls.receive_call(2, at(4));
        assert_eq!(calls.missed(Step(3)), BTreeSet::new());
        assert_eq!(calls.missed(Step(4)), BTreeSet::from([Step(3)]));
        assert!(calls.due(Step(4)));
        // No slot was free.
        assert_eq!(calls.missed(Step(5)), BTreeSet::from([Step(4)]));
        assert_eq!(calls.missed(Step(99)), BTreeSet::new());
    }

    #[test]
    fn a_rule_of_the_controller_replaces_that_of_the_launch() {
        let mut calls = CheckpointCalls::new(Generation(1), Step(0), 5);
        let rule = CheckpointCall::Every {
            from: Step(8),
            every: 3,
        };
        assert_eq!(calls.receive_call(1, rule), None);
        let due: Vec<u64> = (1..=13).filter(|step| calls.due(Step(*step))).collect();
        assert_eq!(due, [5, 9, 12]);
    }
}

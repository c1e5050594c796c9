//! The side of a rank: which boundaries between steps it takes an image at.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{CheckpointCall, Generation, Step};

use super::Word;

/// Called steps that a rank remembers; a call beyond that is answered as one that came too late.
pub const MAX_CALLED: usize = 16;

/// Images that a rank remembers having taken, so that a call which comes again does not count as missed.
const MAX_TAKEN: usize = 64;

/// What a rank does and says when it hears a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It will take part.
    InTime,
    /// It knew already, or knows a later rule.
    Known,
    /// It will not: the step is behind it (or there is no room to remember it). To be told to the controller.
    TooLate {
        /// The step of which it takes no image.
        step: Step,
    },
    /// The call is for another generation.
    Foreign,
}

/// What to do at the end of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boundary {
    /// Take an image now.
    pub image: bool,
    /// Called steps that were jumped over; the rank takes no image of them. To be told to the controller.
    pub missed: Vec<Step>,
}

/// What one rank of one generation has agreed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follower {
    generation: Generation,
    /// The newest boundary it has decided about.
    passed: Step,
    /// Rules by the step from which they hold, each with its number; the first holds now.
    rules: BTreeMap<Step, (u64, u64)>,
    /// Single steps.
    called: BTreeMap<Step, u64>,
    /// Steps of which it took an image, the newest.
    taken: BTreeSet<Step>,
}

impl Follower {
    /// A rank that goes on from the end of step `start`, with the rule of its launch: a checkpoint after every so many
    /// steps, or none where that is 0.
    pub fn new(generation: Generation, start: Step, every: u64) -> Self {
        Self {
            generation,
            passed: start,
            rules: BTreeMap::from([(Step(0), (0, every))]),
            called: BTreeMap::new(),
            taken: BTreeSet::new(),
        }
    }

    /// The generation it belongs to.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Hears a call.
    pub fn hear(&mut self, word: &Word) -> Heard {
        if word.generation != self.generation {
            return Heard::Foreign;
        }
        match word.call {
            CheckpointCall::At { step } => self.hear_step(step, word.number),
            CheckpointCall::Every { from, every } => self.hear_rule(from, every, word.number),
        }
    }

    fn hear_step(&mut self, step: Step, number: u64) -> Heard {
        if self.called.contains_key(&step) || self.taken.contains(&step) {
            return Heard::Known;
        }
        if step <= self.passed || self.called.len() >= MAX_CALLED {
            return Heard::TooLate { step };
        }
        self.called.insert(step, number);
        Heard::InTime
    }

    /// A later rule ends every earlier one that would begin at its step or after. One that comes late holds from now
    /// on: what this rank does until the others' rule and its own meet is void, and nothing worse.
    fn hear_rule(&mut self, from: Step, every: u64, number: u64) -> Heard {
        if self.rules.values().any(|(known, _)| *known >= number) {
            return Heard::Known;
        }
        self.rules.retain(|begins, _| *begins < from || *begins <= self.passed);
        let late = from <= self.passed;
        if late {
            self.rules.clear();
        }
        self.rules.insert(from, (number, every));
        if late {
            Heard::TooLate { step: from }
        } else {
            Heard::InTime
        }
    }

    /// The end of a step; `step` is how many are complete. Each boundary is decided once: asked again about an earlier
    /// one, it takes no image.
    pub fn boundary(&mut self, step: Step) -> Boundary {
        if step <= self.passed {
            return Boundary::default();
        }
        self.passed = step;
        let later = self.called.split_off(&Step(step.0.saturating_add(1)));
        let mut reached = std::mem::replace(&mut self.called, later);
        let called = reached.remove(&step).is_some();
        // Rules that have been replaced by now are forgotten.
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
        Boundary {
            image,
            missed: reached.into_keys().collect(),
        }
    }

    /// Whether the end of this step would be one to take an image at, as far as is known now.
    pub fn expects(&self, step: Step) -> bool {
        self.clone().boundary(step).image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64, step: u64) -> Word {
        let call = CheckpointCall::At { step: Step(step) };
        Word {
            generation: Generation(1),
            number,
            call,
        }
    }

    fn every(number: u64, from: u64, every: u64) -> Word {
        let call = CheckpointCall::Every {
            from: Step(from),
            every,
        };
        Word {
            generation: Generation(1),
            number,
            call,
        }
    }

    fn images(follower: &mut Follower, steps: std::ops::RangeInclusive<u64>) -> Vec<u64> {
        steps.filter(|step| follower.boundary(Step(*step)).image).collect()
    }

    #[test]
    fn the_rule_of_the_launch_holds_without_a_word() {
        let mut follower = Follower::new(Generation(1), Step(0), 4);
        assert_eq!(images(&mut follower, 1..=10), [4, 8]);
        assert_eq!(images(&mut Follower::new(Generation(1), Step(4), 0), 5..=100), []);
    }

    #[test]
    fn a_call_in_time_is_kept_and_one_too_late_is_refused() {
        let mut follower = Follower::new(Generation(1), Step(0), 0);
        assert_eq!(follower.hear(&at(1, 5)), Heard::InTime);
        assert_eq!(follower.hear(&at(1, 5)), Heard::Known);
        assert!(follower.expects(Step(5)) && !follower.expects(Step(6)));
        assert_eq!(images(&mut follower, 1..=7), [5]);
        // Said again after the image was taken: nothing was missed.
        assert_eq!(follower.hear(&at(1, 5)), Heard::Known);
        assert_eq!(follower.hear(&at(2, 7)), Heard::TooLate { step: Step(7) });
        let foreign = Word {
            generation: Generation(2),
            ..at(3, 50)
        };
        assert_eq!(follower.hear(&foreign), Heard::Foreign);
    }

    #[test]
    fn a_step_that_was_jumped_over_is_missed_and_never_taken_at_another() {
        let mut follower = Follower::new(Generation(1), Step(0), 0);
        follower.hear(&at(1, 5));
        follower.hear(&at(2, 6));
        assert_eq!(
            follower.boundary(Step(6)),
            Boundary {
                image: true,
                missed: vec![Step(5)]
            }
        );
        assert_eq!(follower.boundary(Step(6)), Boundary::default());
        assert_eq!(follower.boundary(Step(5)), Boundary::default());
    }

    #[test]
    fn a_later_rule_holds_from_its_step_whatever_order_they_come_in() {
        let hear = |words: &[Word]| {
            let mut follower = Follower::new(Generation(1), Step(0), 10);
            words.iter().for_each(|word| {
                follower.hear(word);
            });
            images(&mut follower, 1..=60)
        };
        assert_eq!(
            hear(&[every(1, 25, 5), every(2, 41, 7)]),
            [10, 20, 25, 30, 35, 40, 42, 49, 56]
        );
        // The earlier one that comes after the later one is not heeded.
        assert_eq!(hear(&[every(2, 41, 7), every(1, 25, 5)]), [10, 20, 30, 40, 42, 49, 56]);
        // A later one that begins earlier ends the other.
        assert_eq!(hear(&[every(1, 41, 7), every(2, 25, 20)]), [10, 20, 40, 60]);
    }

    #[test]
    fn a_rule_that_comes_late_holds_from_now_on() {
        let mut follower = Follower::new(Generation(1), Step(0), 10);
        assert_eq!(images(&mut follower, 1..=32), [10, 20, 30]);
        assert_eq!(follower.hear(&every(1, 30, 4)), Heard::TooLate { step: Step(30) });
        assert_eq!(images(&mut follower, 33..=41), [36, 40]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut follower = Follower::new(Generation(1), Step(0), 0);
        for step in 1..=MAX_CALLED as u64 {
            assert_eq!(follower.hear(&at(step, step)), Heard::InTime);
        }
        assert_eq!(follower.hear(&at(99, 99)), Heard::TooLate { step: Step(99) });
        for number in 1..1_000 {
            follower.hear(&every(number, 2_000 - number, 3));
        }
        assert!(follower.rules.len() <= 2, "{:?}", follower.rules);
    }
}

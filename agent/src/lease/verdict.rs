//! Evaluation of the witnesses' answers (decision 14).

use std::fmt;
use std::time::Duration;

use rankguard_model::NodeId;

/// Answer of one witness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WitnessAnswer {
    pub(crate) node: NodeId,
    /// Age of its newest proof of contact with the controller; `None` if it has none.
    pub(crate) contact_age: Option<Duration>,
}

/// Verdict on whether ranks may continue without the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseVerdict {
    /// No other agent is known, so the job can run nowhere else.
    Alone,
    /// A majority of the witnesses answers, and none of them reaches the controller: it is unreachable for all.
    ControllerAway {
        answered: usize,
        /// Witnesses that were queried.
        witnesses: usize,
    },
    /// Another agent reaches the controller.
    CutOff {
        /// Witness with the most recent contact.
        witness: NodeId,
        /// Age of its newest proof of contact.
        contact_age: Duration,
    },
    /// Too few witnesses answer: the controller may be on the side of the others.
    Isolated {
        answered: usize,
        /// Witnesses that were queried.
        witnesses: usize,
    },
    /// No controller has named witnesses since the agent started.
    Unknown,
}

impl LeaseVerdict {
    /// Judges the answers of `witnesses` queried agents. A witness reaches the controller if its last contact is in
    /// the later half of the time that this agent has been without it: after a loss for all, every agent's last
    /// contact is about as old as this one's.
    pub(crate) fn of(witnesses: usize, answers: &[WitnessAnswer], alone_for: Duration) -> Self {
        let recent = answers.iter().filter_map(|answer| {
            let age = answer.contact_age.filter(|age| *age < alone_for / 2)?;
            Some((age, answer.node.clone()))
        });
        if let Some((contact_age, witness)) = recent.min() {
            return Self::CutOff { witness, contact_age };
        }
        let answered = answers.len();
        if witnesses == 0 {
            Self::Alone
        } else if answered * 2 > witnesses {
            Self::ControllerAway { answered, witnesses }
        } else {
            Self::Isolated { answered, witnesses }
        }
    }

    /// Returns true if ranks may continue.
    pub(crate) fn extends_lease(&self) -> bool {
        matches!(self, Self::Alone | Self::ControllerAway { .. })
    }
}

impl fmt::Display for LeaseVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => write!(f, "no other agent is known, so nothing can run elsewhere"),
            Self::ControllerAway { answered, witnesses } => write!(
                f,
                "{answered} of {witnesses} agents answer and none reaches the controller: it is away for all"
            ),
            Self::CutOff { witness, contact_age } => write!(
                f,
                "the agent of node {witness} was in contact with the controller {:.1} s ago: this node is cut off",
                contact_age.as_secs_f64()
            ),
            Self::Isolated { answered, witnesses } => write!(
                f,
                "the controller does not answer and only {answered} of {witnesses} agents do: this node may be cut off"
            ),
            Self::Unknown => write!(f, "no controller has named other agents since this agent started"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE_FOR: Duration = Duration::from_secs(20);

    fn answer(node: &str, age_s: Option<u64>) -> WitnessAnswer {
        WitnessAnswer {
            node: NodeId::from(node),
            contact_age: age_s.map(Duration::from_secs),
        }
    }

    fn check(witnesses: usize, ages: &[Option<u64>], extends: bool) {
        let answers: Vec<WitnessAnswer> = ages.iter().map(|age| answer("w", *age)).collect();
        let verdict = LeaseVerdict::of(witnesses, &answers, ALONE_FOR);
        assert_eq!(verdict.extends_lease(), extends, "{verdict:?}");
    }

    #[test]
    fn rg_5_a_majority_without_the_controller_extends_the_lease() {
        check(0, &[], true);
        check(1, &[Some(20)], true);
        check(3, &[Some(19), None], true);
        check(8, &[None; 5], true);
    }

    #[test]
    fn rg_3_one_witness_that_reaches_the_controller_outweighs_all_others() {
        check(3, &[Some(20), Some(20), Some(1)], false);
        check(1, &[Some(9)], false);
    }

    /// Two agents on one side of a partition do not keep each other's ranks alive.
    #[test]
    fn rg_3_half_of_the_witnesses_is_not_enough() {
        check(1, &[], false);
        check(2, &[Some(20)], false);
        check(3, &[Some(20)], false);
        check(4, &[Some(20), Some(20)], false);
        check(8, &[None; 4], false);
    }
}

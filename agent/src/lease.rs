//! The agent's lease on its ranks: without a sign of the controller, or of other agents that do not reach it either, ranks end
//! when the lease is over (RG-3, RG-5).
//!
//! - The lease is renewed by proofs of the controller: answers to what this agent sent, dated at the moment of sending. An
//!   answer that waited in a buffer while the agent was stopped renews nothing.
//! - While proofs are missing, other agents are asked ([`LeaseWatch`]). A majority that has lost the controller too extends the
//!   lease: the controller is away for all, and training continues.
//! - All moments are of [`boot_now`], which cannot be set and counts while the machine is suspended.

mod proof_log;
mod verdict;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rankguard_model::Peer;

use crate::boot_clock::boot_now;
use crate::outlets::LeaseView;

pub(crate) use proof_log::ProofLog;
pub(crate) use verdict::{LeaseVerdict, WitnessAnswer};
pub(crate) use watch::LeaseWatch;

/// The lease. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RankLease {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    length: Duration,
    terms: Mutex<Terms>,
}

#[derive(Debug)]
struct Terms {
    /// The lease is over at this moment.
    until: Duration,
    /// The newest moment at which something was sent that the controller answered.
    contact: Option<Duration>,
    /// When contact can have been lost at the earliest: the contact, or the start of the agent.
    alone_since: Duration,
    /// Agents to ask; absent until a controller has named them, also when it named none.
    witnesses: Option<Vec<Peer>>,
    verdict: Option<LeaseVerdict>,
}

impl RankLease {
    /// A lease that begins now.
    pub(crate) fn new(length: Duration) -> Self {
        let now = boot_now();
        let terms = Terms {
            until: now + length,
            contact: None,
            alone_since: now,
            witnesses: None,
            verdict: None,
        };
        Self {
            shared: Arc::new(Shared {
                length,
                terms: Mutex::new(terms),
            }),
        }
    }

    fn terms(&self) -> MutexGuard<'_, Terms> {
        self.shared.terms.lock().expect("no holder of the lease panics")
    }

    /// How long it lasts without a renewal.
    pub(crate) fn length(&self) -> Duration {
        self.shared.length
    }

    /// Whether ranks may run.
    pub(crate) fn is_held(&self) -> bool {
        !self.expires_in().is_zero()
    }

    /// Time until ranks end, unless the lease is renewed.
    pub(crate) fn expires_in(&self) -> Duration {
        self.terms().until.saturating_sub(boot_now())
    }

    /// The time until which a supervisor may hold ranks without another renewal; `None` where no rank may run. Never a full length
    /// beyond now: an agent that lost the controller and is then stopped ends its ranks at the end of its own lease.
    pub(crate) fn renewal(&self) -> Option<Duration> {
        let until = self.terms().until;
        (until > boot_now()).then_some(until)
    }

    /// The controller has answered something that was sent at this moment.
    pub(crate) fn renew(&self, proof: Duration) {
        let mut terms = self.terms();
        terms.contact = terms.contact.max(Some(proof));
        terms.alone_since = terms.alone_since.max(proof);
        terms.until = terms.until.max(proof + self.shared.length);
        terms.verdict = None;
    }

    /// Witnesses were asked at this moment. A lease that is over is not extended: its ranks have ended.
    pub(crate) fn judged(&self, asked_at: Duration, verdict: LeaseVerdict) {
        let mut terms = self.terms();
        let held = terms.until > boot_now();
        if held && verdict.extends_lease() {
            terms.until = terms.until.max(asked_at + self.shared.length);
        }
        terms.verdict = Some(verdict);
    }

    /// Age of the newest proof of the controller; absent before the first.
    pub(crate) fn contact_age(&self) -> Option<Duration> {
        let contact = self.terms().contact;
        contact.map(|contact| boot_now().saturating_sub(contact))
    }

    /// How long this agent has been without the controller; counts from its start before the first contact.
    pub(crate) fn alone_for(&self) -> Duration {
        boot_now().saturating_sub(self.terms().alone_since)
    }

    /// The controller has named the agents to ask.
    pub(crate) fn set_witnesses(&self, witnesses: Vec<Peer>) {
        self.terms().witnesses = Some(witnesses);
    }

    /// The agents to ask; absent until a controller has named them.
    pub(crate) fn witnesses(&self) -> Option<Vec<Peer>> {
        self.terms().witnesses.clone()
    }

    /// Why the lease ended, or was last extended by witnesses.
    pub(crate) fn verdict(&self) -> Option<LeaseVerdict> {
        self.terms().verdict.clone()
    }

    /// The lease as the agent's status shows it.
    pub(crate) fn view(&self) -> LeaseView {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let witnesses = self.witnesses().unwrap_or_default();
        LeaseView {
            length_ms: millis(self.length()),
            expires_in_ms: millis(self.expires_in()),
            is_held: self.is_held(),
            witnesses: witnesses.into_iter().map(|peer| peer.node).collect(),
            verdict: self.verdict().map(|verdict| verdict.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(30);

    #[test]
    fn rg_3_an_old_answer_renews_nothing_and_an_ended_lease_is_not_extended() {
        let lease = RankLease::new(LENGTH);
        let start = boot_now();
        lease.renew(start.saturating_sub(Duration::from_secs(29)));
        assert!(
            lease.expires_in() > Duration::from_secs(29),
            "the lease began with the agent"
        );
        lease.terms().until = start;
        assert!(!lease.is_held());
        lease.renew(start.saturating_sub(LENGTH));
        assert!(
            !lease.is_held(),
            "an answer to something that was sent before the lease ended"
        );
        lease.judged(
            boot_now(),
            LeaseVerdict::ControllerAway {
                answered: 2,
                witnesses: 2,
            },
        );
        assert!(!lease.is_held(), "its ranks have ended");
        lease.renew(boot_now());
        assert!(lease.is_held());
    }

    #[test]
    fn rg_5_a_controller_that_is_away_for_all_extends_the_lease() {
        let lease = RankLease::new(LENGTH);
        lease.terms().until = boot_now() + Duration::from_secs(1);
        lease.judged(
            boot_now(),
            LeaseVerdict::CutOff {
                witness: "n2".into(),
                contact_age: Duration::ZERO,
            },
        );
        assert!(lease.expires_in() <= Duration::from_secs(1));
        lease.judged(
            boot_now(),
            LeaseVerdict::ControllerAway {
                answered: 2,
                witnesses: 3,
            },
        );
        assert!(lease.expires_in() > Duration::from_secs(29));
    }
}

//! Lease of the agent on its ranks: without proof of contact with the controller, or with other agents that have lost
//! it too, ranks end when the lease expires (RG-3, RG-5).
//!
//! - Proofs of contact renew the lease: answers of the controller to messages of this agent, dated at the moment of
//!   sending. An answer that waited in a buffer while the agent was stopped renews nothing.
//! - Without a recent proof, other agents are queried (`lease_watch`). A majority that has lost the controller too
//!   extends the lease: the controller is unreachable for all, and training continues.
//! - All times are of [`boot_now`], which cannot be set and counts while the machine is suspended.

mod proof_log;
mod verdict;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rankguard_model::PeerAgent;

use crate::boot_clock::boot_now;
use crate::views::LeaseView;

pub(crate) use proof_log::ProofLog;
pub(crate) use verdict::{LeaseVerdict, WitnessAnswer};

/// Lease on this node's ranks. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RankLease {
    shared: Arc<SharedLease>,
}

#[derive(Debug)]
struct SharedLease {
    length: Duration,
    terms: Mutex<LeaseTerms>,
}

#[derive(Debug)]
struct LeaseTerms {
    /// Expiry of the lease.
    until: Duration,
    /// Newest send time of a message that the controller answered.
    contact: Option<Duration>,
    /// Earliest time at which contact can have been lost: the last contact, or the start of the agent.
    alone_since: Duration,
    /// Agents to query; `None` until a controller has named them, `Some` also when it named none.
    witnesses: Option<Vec<PeerAgent>>,
    verdict: Option<LeaseVerdict>,
}

impl RankLease {
    /// Returns a lease that begins now.
    pub(crate) fn new(length: Duration) -> Self {
        let now = boot_now();
        let terms = LeaseTerms {
            until: now + length,
            contact: None,
            alone_since: now,
            witnesses: None,
            verdict: None,
        };
        Self {
            shared: Arc::new(SharedLease {
                length,
                terms: Mutex::new(terms),
            }),
        }
    }

    fn terms(&self) -> MutexGuard<'_, LeaseTerms> {
        self.shared.terms.lock().expect("no holder of the lease panics")
    }

    /// Returns the duration of the lease without a renewal.
    pub(crate) fn length(&self) -> Duration {
        self.shared.length
    }

    /// Returns true if ranks may run.
    pub(crate) fn is_held(&self) -> bool {
        !self.expires_in().is_zero()
    }

    /// Returns the time until ranks end, unless the lease is renewed.
    pub(crate) fn expires_in(&self) -> Duration {
        self.terms().until.saturating_sub(boot_now())
    }

    /// Returns the time until which a supervisor may run ranks without another renewal; `None` if no rank may run.
    /// Never a full length beyond now: an agent that lost the controller and is then stopped ends its ranks when its
    /// own lease expires.
    pub(crate) fn renewal(&self) -> Option<Duration> {
        let until = self.terms().until;
        (until > boot_now()).then_some(until)
    }

    /// Renews the lease: the controller has answered a message that was sent at `proof`.
    pub(crate) fn renew(&self, proof: Duration) {
        let mut terms = self.terms();
        terms.contact = terms.contact.max(Some(proof));
        terms.alone_since = terms.alone_since.max(proof);
        terms.until = terms.until.max(proof + self.shared.length);
        terms.verdict = None;
    }

    /// Applies the verdict of the witnesses, which were queried at `asked_at`. An expired lease is not extended: its
    /// ranks have ended.
    pub(crate) fn judged(&self, asked_at: Duration, verdict: LeaseVerdict) {
        let mut terms = self.terms();
        let held = terms.until > boot_now();
        if held && verdict.extends_lease() {
            terms.until = terms.until.max(asked_at + self.shared.length);
        }
        terms.verdict = Some(verdict);
    }

    /// Returns the age of the newest proof of contact; `None` before the first.
    pub(crate) fn contact_age(&self) -> Option<Duration> {
        let contact = self.terms().contact;
        contact.map(|contact| boot_now().saturating_sub(contact))
    }

    /// Returns the time for which this agent has been without the controller, counted from its start before the first
    /// contact.
    pub(crate) fn alone_for(&self) -> Duration {
        boot_now().saturating_sub(self.terms().alone_since)
    }

    /// Sets the agents to query, as named by the controller.
    pub(crate) fn set_witnesses(&self, witnesses: Vec<PeerAgent>) {
        self.terms().witnesses = Some(witnesses);
    }

    /// Returns the agents to query; `None` until a controller has named them.
    pub(crate) fn witnesses(&self) -> Option<Vec<PeerAgent>> {
        self.terms().witnesses.clone()
    }

    /// Returns the last verdict since contact was lost: the reason for the lease's end or extension.
    pub(crate) fn verdict(&self) -> Option<LeaseVerdict> {
        self.terms().verdict.clone()
    }

    /// Returns the reason to end ranks after the lease has expired, as text for operators.
    pub(crate) fn end_reason(&self) -> String {
        let length = self.length().as_secs_f64();
        let why = match self.verdict() {
            Some(verdict) if !verdict.extends_lease() => verdict.to_string(),
            _ => "the agent was stopped or starved and could not ask other agents".to_owned(),
        };
        format!("the lease of {length} s is over: {why}")
    }

    /// Returns the lease for the agent's status.
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

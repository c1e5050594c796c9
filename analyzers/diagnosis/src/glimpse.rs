//! Glimpses: borrowed signs. Most signs of a storm are counted and not stored, so nothing is copied before; a stored
//! sign is shared by all its holders.

use std::borrow::Cow;
use std::cell::OnceCell;

use rankguard_model::{Body, ClassId, Entity, Evidence, EvidenceId, Mark, NodeId, Role, Shared, Source, Timestamp};

use crate::sameness::Said;
use crate::{Sign, What};

/// Class of an exception that no signature knows better: it shows how a failure surfaced, not the cause.
const SURFACED: &str = "uncaught-exception";
/// Class of a connection that the peer closed.
const LOST_PEER: &str = "remote-worker-lost";
/// Class of a hang that a line names explicitly.
const HANG: &str = "hang-no-error";

/// Borrowed single meaning of evidence.
#[derive(Debug, Clone)]
pub(crate) struct Glimpse<'e> {
    pub(crate) evidence: &'e EvidenceId,
    pub(crate) at: Timestamp,
    pub(crate) timed: bool,
    pub(crate) source: Source,
    pub(crate) entity: &'e Entity,
    pub(crate) meaning: Meaning<'e>,
    pub(crate) text: Cow<'e, str>,
    pub(crate) synthetic: bool,
    /// Repeat hash, shared by all repeats ([`Said::sameness`]); none for exits and facts, which are never repeats.
    pub(crate) same: Option<u64>,
    /// Owned sign, once one is stored.
    sign: OnceCell<Shared<Sign>>,
}

/// Meaning of a sign.
#[derive(Debug, Clone)]
pub(crate) enum Meaning<'e> {
    /// Mark of a signature.
    Mark(&'e Mark),
    /// Any other meaning; never [`What::Mark`].
    Plain(What),
}

impl<'e> Glimpse<'e> {
    /// Returns the meanings of evidence; none if it is unrelated to failures.
    pub(crate) fn all(evidence: &'e Evidence) -> impl Iterator<Item = Self> {
        let plain = match &evidence.body {
            Body::RankExited {
                pid,
                exit,
                ended_by_agent: false,
            } if !exit.is_success() => Some(What::Exit { pid: *pid, exit: *exit }),
            Body::OrderFailed { .. } => Some(What::OrderFailed),
            _ => None,
        };
        // A line with a known class is not also an exception of unknown meaning: a lost peer that surfaces as a
        // Python exception is a lost peer.
        let known = evidence.marks.iter().any(|mark| mark.class.as_str() != SURFACED);
        // Libraries guess at the cause of a lost connection (Gloo: "typically caused by a remote worker hanging").
        // The line is evidence of the loss alone.
        let lost = evidence.marks.iter().any(|mark| mark.class.as_str() == LOST_PEER);
        let telling = move |mark: &&Mark| match mark.class.as_str() {
            SURFACED => !known,
            HANG => !lost,
            _ => true,
        };
        let marks = evidence.marks.iter().filter(telling).map(Meaning::Mark);
        let meanings = plain.map(Meaning::Plain).into_iter().chain(marks);
        // All marks of a line share its text.
        let said = (!evidence.marks.is_empty()).then(|| {
            let text = text(&evidence.body);
            Said::of(evidence.source, &evidence.entity, &text)
        });
        meanings.map(move |meaning| Self::new(evidence, meaning, said.as_ref()))
    }

    fn new(evidence: &'e Evidence, meaning: Meaning<'e>, said: Option<&Said<'_>>) -> Self {
        let same = match (said, &meaning) {
            (Some(said), Meaning::Mark(mark)) => Some(said.sameness(mark)),
            _ => None,
        };
        Self {
            same,
            evidence: &evidence.id,
            at: evidence.at,
            timed: true,
            source: evidence.source,
            entity: &evidence.entity,
            meaning,
            text: text(&evidence.body),
            synthetic: evidence.synthetic,
            sign: OnceCell::new(),
        }
    }

    /// Creates a glimpse of an existing sign.
    pub(crate) fn of(sign: &'e Shared<Sign>) -> Self {
        let said = || Said::of(sign.source, &sign.entity, &sign.text);
        Self::again(sign, sign.mark().map(|mark| said().sameness(mark)))
    }

    /// Creates a glimpse of a sign with a known repeat hash.
    pub(crate) fn again(sign: &'e Shared<Sign>, same: Option<u64>) -> Self {
        Self {
            sign: sign.clone().into(),
            same,
            evidence: &sign.evidence,
            at: sign.at,
            timed: sign.timed,
            source: sign.source,
            entity: &sign.entity,
            meaning: match &sign.what {
                What::Mark(mark) => Meaning::Mark(mark),
                other => Meaning::Plain(other.clone()),
            },
            text: Cow::Borrowed(&sign.text),
            synthetic: sign.synthetic,
        }
    }

    /// Returns the shared sign, created on first use.
    pub(crate) fn sign(&self) -> Shared<Sign> {
        self.sign.get_or_init(|| Shared::from(self.copied())).clone()
    }

    /// Returns a separate copy of the sign.
    pub(crate) fn copied(&self) -> Sign {
        Sign {
            evidence: self.evidence.clone(),
            at: self.at,
            timed: self.timed,
            source: self.source,
            entity: self.entity.clone(),
            what: match &self.meaning {
                Meaning::Mark(mark) => What::Mark((*mark).clone()),
                Meaning::Plain(what) => what.clone(),
            },
            text: self.text.clone().into_owned(),
            synthetic: self.synthetic,
        }
    }

    /// Overwrites a stored sign with this repeat: copies only the differences if it has no other holder.
    pub(crate) fn overwrite(&self, sign: &mut Shared<Sign>) {
        let Some(sign) = sign.get_mut() else {
            *sign = self.sign();
            return;
        };
        (sign.at, sign.timed, sign.source) = (self.at, self.timed, self.source);
        sign.synthetic = self.synthetic;
        sign.evidence.seq = self.evidence.seq;
        if sign.evidence.node != self.evidence.node {
            sign.evidence.node.clone_from(&self.evidence.node);
        }
        if sign.entity != *self.entity {
            sign.entity.clone_from(self.entity);
        }
        if sign.text != self.text {
            sign.text.clear();
            sign.text.push_str(&self.text);
        }
        match (&mut sign.what, &self.meaning) {
            (What::Mark(held), Meaning::Mark(mark)) if *held == **mark => {}
            (held, _) => *held = self.copied().what,
        }
    }

    pub(crate) fn mark(&self) -> Option<&'e Mark> {
        match self.meaning {
            Meaning::Mark(mark) => Some(mark),
            Meaning::Plain(_) => None,
        }
    }

    pub(crate) fn class(&self) -> Option<&'e ClassId> {
        self.mark().map(|mark| &mark.class)
    }

    pub(crate) fn is_exit(&self) -> bool {
        matches!(self.meaning, Meaning::Plain(What::Exit { .. }))
    }

    pub(crate) fn node(&self) -> Option<&'e NodeId> {
        self.entity.node()
    }

    /// Returns true if it can change the verdict: roots, confirmations, exits and facts.
    pub(crate) fn decides(&self) -> bool {
        self.mark().is_none_or(decides)
    }
}

/// Returns true if a mark can change the verdict.
pub(crate) fn decides(mark: &Mark) -> bool {
    matches!(mark.role, Role::Root | Role::Confirmation)
}

/// Returns the readable text of evidence.
fn text(body: &Body) -> Cow<'_, str> {
    match body {
        Body::Line { text, .. } => Cow::Borrowed(text),
        Body::Sample { metric, value, unit } => Cow::Owned(format!("{metric} is {value} {unit}")),
        Body::Gap { what, .. } => Cow::Borrowed(what),
        Body::ShardFailed { step, reason } => {
            Cow::Owned(format!("the shard of step {step} could not be kept: {reason}"))
        }
        Body::RankExited { pid, exit, .. } => Cow::Owned(format!("process {pid} ended with {exit}")),
        Body::OrderFailed { reason, .. } => Cow::Borrowed(reason),
        _ => Cow::Borrowed(""),
    }
}

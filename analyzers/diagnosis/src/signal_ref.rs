//! Glimpses: borrowed signs. Most signs of a storm are counted and not stored, so nothing is copied before; a stored
//! sign is shared by all its holders.

use std::borrow::Cow;
use std::cell::OnceCell;

use rankguard_faults::classes;
use rankguard_model::{
    ClassId, Classification, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, NodeId, Role, SharedValue,
    Timestamp,
};

use crate::repeat_key::RepeatKey;
use crate::{Signal, SignalMeaning};

/// Borrowed single meaning of evidence.
#[derive(Debug, Clone)]
pub(crate) struct SignalRef<'e> {
    pub(crate) evidence: &'e EvidenceId,
    pub(crate) at: Timestamp,
    pub(crate) timed: bool,
    pub(crate) source: EvidenceSource,
    pub(crate) entity: &'e Entity,
    pub(crate) meaning: MeaningRef<'e>,
    pub(crate) text: Cow<'e, str>,
    pub(crate) synthetic: bool,
    /// Repeat hash, shared by all repeats ([`RepeatKey::sameness`]); none for exits and facts, which are never repeats.
    pub(crate) same: Option<u64>,
    /// Owned sign, once one is stored.
    sign: OnceCell<SharedValue<Signal>>,
}

/// Meaning of a sign.
#[derive(Debug, Clone)]
pub(crate) enum MeaningRef<'e> {
    /// Mark of a signature.
    Mark(&'e Classification),
    /// Any other meaning; never [`What::Mark`].
    Plain(SignalMeaning),
}

impl<'e> SignalRef<'e> {
    /// Returns the meanings of evidence; none if it is unrelated to failures.
    pub(crate) fn all(evidence: &'e Evidence) -> impl Iterator<Item = Self> {
        let plain = match &evidence.body {
            EvidenceBody::RankExited {
                pid,
                exit,
                ended_by_agent: false,
            } if !exit.is_success() => Some(SignalMeaning::Exit { pid: *pid, exit: *exit }),
            EvidenceBody::OrderFailed { .. } => Some(SignalMeaning::OrderFailed),
            _ => None,
        };
        // A line with a known class is not also an exception of unknown meaning: a lost peer that surfaces as a
        // Python exception is a lost peer.
        let known = evidence
            .marks
            .iter()
            .any(|mark| mark.class.as_str() != classes::UNCAUGHT_EXCEPTION);
        // Libraries guess at the cause of a lost connection (Gloo: "typically caused by a remote worker hanging").
        // The line is evidence of the loss alone.
        let lost = evidence
            .marks
            .iter()
            .any(|mark| mark.class.as_str() == classes::REMOTE_WORKER_LOST);
        let telling = move |mark: &&Classification| match mark.class.as_str() {
            classes::UNCAUGHT_EXCEPTION => !known,
            classes::HANG_NO_ERROR => !lost,
            _ => true,
        };
        let marks = evidence.marks.iter().filter(telling).map(MeaningRef::Mark);
        let meanings = plain.map(MeaningRef::Plain).into_iter().chain(marks);
        // All marks of a line share its text.
        let said = (!evidence.marks.is_empty()).then(|| {
            let text = text(&evidence.body);
            RepeatKey::of(evidence.source, &evidence.entity, &text)
        });
        meanings.map(move |meaning| Self::new(evidence, meaning, said.as_ref()))
    }

    fn new(evidence: &'e Evidence, meaning: MeaningRef<'e>, said: Option<&RepeatKey<'_>>) -> Self {
        let same = match (said, &meaning) {
            (Some(said), MeaningRef::Mark(mark)) => Some(said.sameness(mark)),
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
    pub(crate) fn of(sign: &'e SharedValue<Signal>) -> Self {
        let said = || RepeatKey::of(sign.source, &sign.entity, &sign.text);
        Self::again(sign, sign.mark().map(|mark| said().sameness(mark)))
    }

    /// Creates a glimpse of a sign with a known repeat hash.
    pub(crate) fn again(sign: &'e SharedValue<Signal>, same: Option<u64>) -> Self {
        Self {
            sign: sign.clone().into(),
            same,
            evidence: &sign.evidence,
            at: sign.at,
            timed: sign.timed,
            source: sign.source,
            entity: &sign.entity,
            meaning: match &sign.what {
                SignalMeaning::Mark(mark) => MeaningRef::Mark(mark),
                other => MeaningRef::Plain(other.clone()),
            },
            text: Cow::Borrowed(&sign.text),
            synthetic: sign.synthetic,
        }
    }

    /// Returns the shared sign, created on first use.
    pub(crate) fn sign(&self) -> SharedValue<Signal> {
        self.sign.get_or_init(|| SharedValue::from(self.copied())).clone()
    }

    /// Returns a separate copy of the sign.
    pub(crate) fn copied(&self) -> Signal {
        Signal {
            evidence: self.evidence.clone(),
            at: self.at,
            timed: self.timed,
            source: self.source,
            entity: self.entity.clone(),
            what: match &self.meaning {
                MeaningRef::Mark(mark) => SignalMeaning::Mark((*mark).clone()),
                MeaningRef::Plain(what) => what.clone(),
            },
            text: self.text.clone().into_owned(),
            synthetic: self.synthetic,
        }
    }

    /// Overwrites a stored sign with this repeat: copies only the differences if it has no other holder.
    pub(crate) fn overwrite(&self, sign: &mut SharedValue<Signal>) {
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
            (SignalMeaning::Mark(held), MeaningRef::Mark(mark)) if *held == **mark => {}
            (held, _) => *held = self.copied().what,
        }
    }

    pub(crate) fn mark(&self) -> Option<&'e Classification> {
        match self.meaning {
            MeaningRef::Mark(mark) => Some(mark),
            MeaningRef::Plain(_) => None,
        }
    }

    pub(crate) fn class(&self) -> Option<&'e ClassId> {
        self.mark().map(|mark| &mark.class)
    }

    pub(crate) fn is_exit(&self) -> bool {
        matches!(self.meaning, MeaningRef::Plain(SignalMeaning::Exit { .. }))
    }

    pub(crate) fn is_silence(&self) -> bool {
        matches!(&self.meaning, MeaningRef::Plain(meaning) if meaning.is_silence())
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
pub(crate) fn decides(mark: &Classification) -> bool {
    matches!(mark.role, Role::Root | Role::Confirmation)
}

/// Returns the readable text of evidence.
fn text(body: &EvidenceBody) -> Cow<'_, str> {
    match body {
        EvidenceBody::Line { text, .. } => Cow::Borrowed(text),
        EvidenceBody::Sample { metric, value, unit } => Cow::Owned(format!("{metric} is {value} {unit}")),
        EvidenceBody::Gap { what, .. } => Cow::Borrowed(what),
        EvidenceBody::ShardFailed { step, reason } => {
            Cow::Owned(format!("the shard of step {step} could not be kept: {reason}"))
        }
        EvidenceBody::RankExited { pid, exit, .. } => Cow::Owned(format!("process {pid} ended with {exit}")),
        EvidenceBody::OrderFailed { reason, .. } => Cow::Borrowed(reason),
        _ => Cow::Borrowed(""),
    }
}

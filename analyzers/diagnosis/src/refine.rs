//! Refinement by circumstances: the same text means another class, or another layer, depending on its origin.
//!
//! A signature matches one line. The functions below which an exception was raised, the package that raised it and
//! the values in a message are more specific: shapes that differ while a checkpoint is loaded are the checkpoint's; a
//! type error in a training framework without a program line below it is the framework's.

mod layer;
mod meaning;

use rankguard_faults::classes;

use crate::frames::cut_off;
use crate::{CandidateStrength, CauseCandidate, FailureScene};

/// Exception types that name the misuse of a framework, if no narrower class is known.
const RAISED: [(&str, &str); 3] = [
    ("AssertionError", classes::ASSERTION_ERROR),
    ("AttributeError", classes::ATTRIBUTE_ERROR),
    ("TypeError", classes::TYPE_ERROR),
];

/// Sets the class and the layer that a candidate's circumstances show.
pub(crate) fn refine(scene: &FailureScene<'_>, candidate: &mut CauseCandidate) {
    // A line before the traceback often has the same text; only the traceback has frames.
    let sign = candidate
        .support
        .iter()
        .map(|index| &*scene.signs[index])
        .find(|sign| sign.field("functions").is_some())
        .unwrap_or(&scene.signs[candidate.first]);
    if let Some((class, why)) = meaning::of(scene, sign, candidate.class.as_str()) {
        candidate.class = class.into();
        candidate.notes.push(why);
        // The location of the stall names the cause; the wait of the others is only a symptom.
        if class == classes::HANG_STALLED_RANKS {
            candidate.strength = CandidateStrength::Cause;
        }
        return;
    }
    if candidate.class.as_str() == classes::FRAMEWORK_API_MISUSE
        && let Some((_, class)) = RAISED.iter().find(|(kind, _)| sign.text.starts_with(kind))
    {
        candidate.class = (*class).into();
    }
    let texts = candidate.support.iter().map(|index| scene.signs[index].text.as_str());
    let said = texts.chain([sign.text.as_str()]);
    let framed = sign.field("functions").is_some();
    let sign = cut_off(scene, sign).filter(|_| !framed).unwrap_or(sign);
    if let Some((layer, why)) = layer::of(scene, candidate, sign, said) {
        candidate.layer = Some(layer.to_owned());
        candidate.notes.push(why);
    }
}

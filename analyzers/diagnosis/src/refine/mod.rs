//! Circumstances: the same words mean another class, or sit in another layer, by where they were said.
//!
//! A signature sees one line. Below which functions an exception was raised, whose code raised it and what a message counts
//! tells more: shapes that differ while a checkpoint is loaded are the checkpoint's; a type error that a training framework
//! makes on its own, with no line of the program below it, is the framework's.

mod layer;
mod meaning;

use crate::frames::cut_off;
use crate::{Candidate, Scene, Strength};

/// Exceptions whose type tells what a wrong use of a framework is, where nothing narrower is known of it.
const RAISED: [(&str, &str); 3] = [
    ("AssertionError", "assertion-error"),
    ("AttributeError", "attribute-error"),
    ("TypeError", "type-error"),
];

/// Gives a candidate the class and the layer that its circumstances tell.
pub(crate) fn refine(scene: &Scene<'_>, candidate: &mut Candidate) {
    // A line before the traceback often says the same; the traceback is what knows its frames.
    let sign = candidate
        .support
        .iter()
        .map(|index| &*scene.signs[index])
        .find(|sign| sign.field("functions").is_some())
        .unwrap_or(&scene.signs[candidate.first]);
    if let Some((class, why)) = meaning::of(scene, sign, candidate.class.as_str()) {
        candidate.class = class.into();
        candidate.notes.push(why);
        // Who stands still is told by where it stands; that others waited for it only surfaced.
        if class == "hang-stalled-ranks" {
            candidate.strength = Strength::Cause;
        }
        return;
    }
    if candidate.class.as_str() == "framework-api-misuse"
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

//! Denied matches: wordings of a failure in a sentence that reports its absence, or that only considers it.
//!
//! "No CUDA out of memory errors so far" and "NCCL errors: 0" state that nothing failed; "if you see a CUDA out of
//! memory error, lower the batch size" is a hint. A match is denied if, in its own sentence,
//!
//! - a negation or a zero governs it: only words that modify the noun stand between them;
//! - a count of zero, "none" or "not found" follows it;
//! - a condition, a purpose ("to avoid") or a possibility ("may cause") introduces it, or a possibility follows it.
//!
//! A sentence ends at `.`, `;`, `!` or `?` before a space, and a clause also at a comma or a colon: "no response from
//! the driver: GPU has fallen off the bus" denies the response only.

use std::sync::LazyLock;

use regex::Regex;

/// Maximum part of a text before and after a match that is examined, bytes.
const REACH: usize = 160;

/// Words of which every denial has one.
static HINT: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?i-u)\b(?:no|not|never|without|zero|none|free of|absence of|neither|if|in (?:the )?(?:unlikely )?(?:case|event)|whenever|when you|avoids?|prevents?|may|might|could|can|would|should|how to|to handle|to work around|to debug|to diagnose|to survive|to tolerate|will handle|must handle)\b|n't\b|\b0\b",
    )
});

/// Words between a negation and the noun that it governs: determiners, adjectives and parts of a compound noun. A
/// preposition, a conjunction or another verb would end the noun phrase.
const MODIFIERS: &str = r"(?:(?:an?|any|the|other|new|more|further|single|such|known|recent|previous|kind|type|sign|signs|evidence|trace|of|(?-i:[A-Z][A-Z0-9]+)|GPUs?|CUDA|NCCL|Xid|ECC|PCIe|NVLink|kernel|host|memory|network|fatal|critical|serious|unexpected|unrecoverable|uncorrectable|uncorrected|corrected|hardware|software|driver|rank|ranks|worker|workers|node|nodes|process|processes|job|jobs|task|tasks|pod|pods|container|containers)[ -]){0,5}['\x22`(]{0,2}(?:(?:\w+\.)*\w+(?:Error|Exception): )?";

/// Text before a match that denies it.
static BEFORE: LazyLock<Regex> = LazyLock::new(|| {
    let perceived = r"(?:(?:see|saw|seen|show|shows|shown|find|found|detect|detected|report|reported|encounter|encountered|observe|observed|hit|hitting|get|got|have|had|having|raise|raised|cause|caused|contain|contains|caused by|due to|because of|result of|seeing|encountering|raising|getting|triggering|trigger|be|been|affected by|related to) ){0,2}";
    compile(&format!(
        r"(?i)(?:^|[^\w-])(?:(?:no|zero|neither|nor|none of|free of|absence of) (?:(?:line|match|entry|message|record)s? (?:with|for|of|containing) )?{MODIFIERS}(?:(?:was|were|is|are|has|have|had|been|got|gets) ){{0,3}}|no \w+ (?:saw|hit|had|got|found|detected|reported|encountered|raised) (?:an?|any|the) {MODIFIERS}|without {perceived}{MODIFIERS}|(?:(?:did|do|does|was|were|is|are|has|have|had) not|(?:did|do|does|was|were|is|are|has|have|had)n't|never) {perceived}{MODIFIERS})$"
    ))
});

/// Start of a counted noun phrase: a zero that is no number of a thing ("rank 0").
static COUNTED: LazyLock<Regex> = LazyLock::new(|| {
    compile(&format!(
        r"(?i)(?:^|[,;:=(|] ?|\b(?:and|with|had|has|have|found|detected|saw|seen|reported|counted|were|are|total|after|of) )(?:0|zero) {MODIFIERS}$"
    ))
});

/// Rest of a counted noun phrase: a plural.
static PLURAL: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?i)^(?:s|es)?(?: (?:errors|events|faults|failures|kills|exceptions|timeouts|crashes|messages|reports|lines|occurrences|resets|flaps|s))?(?:\b|$)",
    )
});

/// Text after a match that denies it: a count of zero, or a statement that it was not seen.
static AFTER: LazyLock<Regex> = LazyLock::new(|| {
    let nouns = r"(?:s|es)?(?:[ _-](?:error|event|fault|failure|kill|exception|timeout|crash|message|report|line|occurrence|reset|flap|count|counter|total|number)(?:s|es)?){0,3}";
    compile(&format!(
        r#"(?i)^['"`] not (?:found|seen|detected)\b|^['"`)]{{0,2}}{nouns}(?: (?:detected|found|seen|reported|so far|in total|today))?(?:\s*(?:[:=]|->|\.{{3,}}|is|are|was|were)\s*(?:0|zero|none|no|not (?:found|seen|detected|reported|observed|present|active))\s*(?:$|[,;.)\]|}}])| (?:(?:was|were|is|are|has been|have been) (?:not|never) (?:found|seen|detected|reported|observed|logged|hit|raised)|did not (?:occur|happen|appear)|(?:has|have) not (?:occurred|happened|appeared))\b|['"`)]{{0,2}}[^'"`;]{{0,60}}(?:-> 0(?:$|[,;. ])|\bnothing (?:was )?found\b))"#
    ))
});

/// Introduction of a condition, a purpose or a possibility, up to the match.
static CONSIDERED: LazyLock<Regex> = LazyLock::new(|| {
    let condition = r"if (?:you|your|we|the|this|that|it|there|an?|any|one|some|training|only)\b|in (?:the )?(?:unlikely )?(?:case|event) (?:of|that|you)\b|whenever\b|when you (?:see|get|hit|encounter|run into)\b|should you\b|how to\b";
    // The clause after a comma is the action itself: "to avoid an inconsistency, the process is ended".
    let purpose = r"(?:to|helps?(?: to)?|can|will|must) (?:avoid|prevent|handle|work around|debug|diagnose|survive|tolerate)\b|avoids\b|prevents\b";
    let outcome = r"(?:may|might|could|can|would) (?:\w+ly )?(?:cause|lead to|result in|run into|trigger|raise|produce|hit|end in|fail with)(?: (?:an?|any|the|further|more|random|spurious|other|occasional|later|subsequent))*";
    compile(&format!(
        r#"(?i)(?:^|[^\w-])(?:(?:{condition})(?:[^:]|:\S|\w(?:Error|Exception|error): )*(?:['"`][^'"`]*)?|(?:{purpose})[^:,]*|{outcome}[ '"`(]*)$"#
    ))
});

/// Condition with the match as its subject: "if NCCL errors continue".
static IF_DIRECT: LazyLock<Regex> =
    LazyLock::new(|| compile(r#"(?i)(?:^|[^\w-])(?:if|in case of|whenever) ['"`(]{0,2}$"#));

/// Possibility of which the match is the subject: "NCCL timeouts can be avoided by ...".
static POSSIBLE: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r#"(?i)^['"`)]{0,2}(?:s|es)?(?: (?:error|event|fault|failure|exception|timeout|kill|problem|issue)s?){0,2} (?:can|may|might|could|would|should) (?:still |then |also |only )?(?:occur|happen|appear|arise|follow|result|be (?:avoided|prevented|expected|ignored|caused|seen|retried))\b"#,
    )
});

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// Returns false only if no match in the text can be denied, also not for other digits: `0` stands for every digit in a
/// masked text.
pub(super) fn may_deny(text: &str) -> bool {
    HINT.is_match(text)
}

/// Returns true if the sentence around `text[from..to]` denies it.
pub(super) fn is_denied(text: &str, from: usize, to: usize) -> bool {
    let start = text.ceil_char_boundary(from.saturating_sub(REACH));
    let end = text.floor_char_boundary(to.saturating_add(REACH).min(text.len()));
    let before = sentence_before(&text[start..from]);
    let after = &text[to..end];
    let counted = || COUNTED.is_match(before) && is_plural(&text[from..to], after);
    BEFORE.is_match(before)
        || counted()
        || AFTER.is_match(after)
        || CONSIDERED.is_match(before)
        || IF_DIRECT.is_match(before)
        || POSSIBLE.is_match(after)
}

/// Returns the part of a text after its last complete sentence.
fn sentence_before(text: &str) -> &str {
    let ends =
        |(at, c): &(usize, char)| matches!(c, '.' | ';' | '!' | '?' | '\n') && text[at + 1..].starts_with([' ', '\t']);
    let end = text.char_indices().rev().find(ends);
    end.map_or(text, |(at, _)| text[at + 1..].trim_start())
}

/// Returns true if a match, with the words after it, is a plural noun phrase.
fn is_plural(matched: &str, after: &str) -> bool {
    let ends_plural = |text: &str| text.trim_end().ends_with(['s', 'S']);
    let rest = PLURAL.find(after).map_or("", |rest| rest.as_str());
    if rest.is_empty() {
        ends_plural(matched)
    } else {
        ends_plural(rest)
    }
}

//! Answer of the model.

use rankguard_faults::{Catalogue, classes};
use rankguard_model::{ClassId, is_hidden};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::redact::Redactor;

/// Characters of a reason and of a name that are shown.
const REASON_CHARS: usize = 400;
const NAME_CHARS: usize = 100;

/// Tokens of the model that the service counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TokenCounts {
    #[serde(default)]
    pub prompt_tokens: u64,
    #[serde(default)]
    pub completion_tokens: u64,
}

/// What the model reads from the excerpt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelReading {
    /// Class of the catalogue, `none` or `unknown`.
    pub class: ClassId,
    /// Layer of the class; `none` without a failure.
    pub layer: String,
    /// Rank that failed first.
    pub root_rank: Option<u32>,
    /// Machine at fault.
    pub node: Option<String>,
    /// One sentence of the model.
    pub reason: String,
    /// Tokens, if the service states them.
    pub tokens: Option<TokenCounts>,
}

impl ModelReading {
    /// Returns true if the class is the verdict's, one that it is labelled as, or a parent or child of it.
    pub fn agrees_with(&self, verdict: &ClassId, catalogue: &Catalogue) -> bool {
        let label = |class: &ClassId| catalogue.label_class(class).clone();
        let is_below = |class: &ClassId, other: &ClassId| catalogue.ancestors(class).any(|above| above.id == *other);
        self.class == *verdict
            || label(&self.class) == label(verdict)
            || is_below(&self.class, verdict)
            || is_below(verdict, &self.class)
    }
}

/// Reason why an answer is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("the answer is no chat completion: {0}")]
    Form(String),
    #[error("the answer contains no JSON object with a text `class`: {0:?}")]
    NoObject(String),
    #[error("the service cut the answer off; raise reader.answer_tokens")]
    CutOff,
    #[error("the answer names {0:?}, which is no class of the catalogue")]
    NoClass(String),
}

#[derive(Debug, Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<TokenCounts>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    message: Message,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    content: Option<String>,
}

/// Object of the answer. A field of another form than requested is read as far as it has a meaning, or left out.
#[derive(Debug)]
struct AnswerObject {
    class: String,
    root_rank: Option<u32>,
    node: Option<String>,
    reason: String,
}

impl AnswerObject {
    fn of(value: &Value) -> Option<Self> {
        let rank = &value["root_rank"];
        let rank = rank.as_u64().or_else(|| rank.as_str()?.trim().parse().ok());
        Some(Self {
            class: value["class"].as_str()?.to_owned(),
            root_rank: rank.and_then(|rank| u32::try_from(rank).ok()),
            node: value["node"].as_str().map(str::to_owned),
            reason: words_of(&value["reason"]),
        })
    }
}

/// Returns a text, or the texts of a list.
fn words_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(words_of).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

/// Parses an answer. Aliases in it are replaced by the names that they stand for.
pub(crate) fn parse(body: &[u8], catalogue: &Catalogue, redactor: &Redactor) -> Result<ModelReading, AnswerError> {
    let completion: Completion =
        serde_json::from_slice(body).map_err(|problem| AnswerError::Form(problem.to_string()))?;
    let choice = completion.choices.into_iter().next();
    let is_cut_off = choice
        .as_ref()
        .is_some_and(|choice| choice.finish_reason.as_deref() == Some("length"));
    let content = choice.and_then(|choice| choice.message.content).unwrap_or_default();
    let refusal = || {
        if is_cut_off {
            AnswerError::CutOff
        } else {
            AnswerError::NoObject(visible(&content, NAME_CHARS))
        }
    };
    let object = object_of(&content).ok_or_else(refusal)?;
    let named = ClassId::from(object.class.trim());
    let outside = [classes::NONE, classes::UNKNOWN].contains(&named.as_str());
    let (class, layer) = match catalogue.class(&named) {
        Some(class) => (class.id.clone(), class.layer.clone()),
        None if outside => (named, "none".to_owned()),
        None => return Err(AnswerError::NoClass(visible(named.as_str(), NAME_CHARS))),
    };
    let node = object.node.map(|node| visible(&redactor.restore(&node), NAME_CHARS));
    Ok(ModelReading {
        class,
        layer,
        root_rank: object.root_rank,
        node: node.filter(|node| !node.is_empty()),
        reason: visible(&redactor.restore(&object.reason), REASON_CHARS),
        tokens: completion.usage,
    })
}

/// Returns the last object with a class in a text; models write thoughts or marks of code around it.
fn object_of(content: &str) -> Option<AnswerObject> {
    let starts = content.match_indices('{').map(|(at, _)| at);
    let mut objects = starts.filter_map(|at| {
        let mut values = serde_json::Deserializer::from_str(&content[at..]).into_iter::<Value>();
        AnswerObject::of(&values.next()?.ok()?)
    });
    objects.next_back()
}

/// Returns the beginning of a text on one line, without characters that act on a terminal.
fn visible(text: &str, most: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().filter(|c| !is_hidden(*c)).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(content: &str) -> Vec<u8> {
        serde_json::json!({
            "choices": [{"message": {"role": "assistant", "content": content}}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
        })
        .to_string()
        .into_bytes()
    }

    fn parsed(content: &str) -> Result<ModelReading, AnswerError> {
        let mut redactor = Redactor::new(["gpu-07".to_owned()], []);
        redactor.line("gpu-07");
        parse(&completion(content), Catalogue::builtin(), &redactor)
    }

    #[test]
    fn an_object_within_words_is_read() {
        let reading = parsed(
            "<think>{\"a\": 1} {\"class\": \"segfault\"}</think>\n```json\n{\"class\": \"cuda-oom\", \"root_rank\": 3, \
             \"node\": \"NODE_1\", \"reason\": \"line 3\\nof NODE_1\\u001b[31m\"}\n```",
        )
        .expect("an answer");
        assert_eq!(
            (reading.class.as_str(), reading.layer.as_str()),
            ("cuda-oom", "user-code")
        );
        assert_eq!((reading.root_rank, reading.node.as_deref()), (Some(3), Some("gpu-07")));
        assert_eq!(reading.reason, "line 3 of gpu-07[31m");
        let tokens = TokenCounts {
            prompt_tokens: 12,
            completion_tokens: 3,
        };
        assert_eq!(reading.tokens, Some(tokens));
    }

    #[test]
    fn an_answer_outside_of_the_catalogue_is_refused() {
        assert_eq!(
            parsed("{\"class\": \"rm -rf /\"}"),
            Err(AnswerError::NoClass("rm -rf /".to_owned()))
        );
        assert_eq!(parsed("it failed"), Err(AnswerError::NoObject("it failed".to_owned())));
        assert!(matches!(
            parse(b"<html>", Catalogue::builtin(), &Redactor::default()),
            Err(AnswerError::Form(_))
        ));
        assert!(matches!(
            parse(b"{\"choices\": []}", Catalogue::builtin(), &Redactor::default()),
            Err(AnswerError::NoObject(_))
        ));
    }

    #[test]
    fn fields_of_another_form_do_not_hide_the_class() {
        let reading =
            parsed("{\"class\": \"cuda-oom\", \"root_rank\": \"3\", \"node\": [], \"reason\": [\"a\", \"b\"]}");
        let reading = reading.expect("an answer");
        assert_eq!(
            (reading.root_rank, reading.node, reading.reason.as_str()),
            (Some(3), None, "a b")
        );
        assert_eq!(
            parsed("{\"class\": \"cuda-oom\", \"root_rank\": -1}")
                .expect("an answer")
                .root_rank,
            None
        );
        let cut = serde_json::json!({
            "choices": [{"message": {"content": "{\"class\": \"cuda"}, "finish_reason": "length"}],
        });
        let parsed = parse(cut.to_string().as_bytes(), Catalogue::builtin(), &Redactor::default());
        assert_eq!(parsed, Err(AnswerError::CutOff));
    }

    #[test]
    fn parents_and_labels_agree() {
        let agrees = |class: &str, verdict: &str| {
            let reading = parsed(&format!("{{\"class\": {class:?}}}")).expect("a class");
            reading.agrees_with(&ClassId::from(verdict), Catalogue::builtin())
        };
        let child = Catalogue::builtin()
            .classes()
            .find(|class| class.parent.is_some())
            .expect("a child");
        let parent = child.parent.clone().expect("its parent");
        assert!(agrees("cuda-oom", "cuda-oom") && agrees(child.id.as_str(), parent.as_str()));
        assert!(agrees(parent.as_str(), child.id.as_str()) && agrees("none", "none"));
        assert!(!agrees("cuda-oom", "segfault") && !agrees("none", "cuda-oom"));
    }
}

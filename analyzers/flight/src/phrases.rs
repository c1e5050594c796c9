//! Text fragments of the report.

use crate::dump::{DumpEntry, StackFrame};

/// Formats `rank 3`, `ranks 1, 4-7`.
pub(crate) fn ranks(ranks: &[u32]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", numbers(ranks))
}

/// Formats an ascending list as `1, 4-7`.
pub(crate) fn numbers(ranks: &[u32]) -> String {
    let mut out = String::new();
    let mut rest = ranks;
    while let Some(first) = rest.first() {
        let mut len = 1;
        while len < rest.len() && rest[len] == first + len as u32 {
            len += 1;
        }
        if !out.is_empty() {
            out.push_str(", ");
        }
        out.push_str(&first.to_string());
        if len > 2 {
            out.push_str(&format!("-{}", rest[len - 1]));
        } else if len == 2 {
            out.push_str(&format!(", {}", rest[1]));
        }
        rest = &rest[len..];
    }
    out
}

pub(crate) fn wait(ranks: &[u32]) -> &'static str {
    if ranks.len() == 1 { "waits" } else { "wait" }
}

/// Formats `74:EXPERT_MODEL_PARALLEL_GROUP`, as PyTorch's own tool does.
pub(crate) fn group_name(id: &str, description: &str) -> String {
    match description {
        "" | "undefined" => id.to_owned(),
        _ => format!("{id}:{description}"),
    }
}

/// Formats `4027x5120`; empty for a tensor without dimensions.
pub(crate) fn shape(sizes: &[i64]) -> String {
    sizes.iter().map(i64::to_string).collect::<Vec<_>>().join("x")
}

/// Formats the shapes of several tensors: `[4027x5120, 16]`
pub(crate) fn shapes(tensors: &[Vec<i64>]) -> String {
    let mut parts: Vec<String> = tensors.iter().take(4).map(|sizes| shape(sizes)).collect();
    if tensors.len() > 4 {
        parts.push(format!("and {} more", tensors.len() - 4));
    }
    format!("[{}]", parts.join(", "))
}

/// Returns the innermost frame of the program: the caller of the library, not the library.
pub(crate) fn own_frame(frames: &[StackFrame]) -> Option<&StackFrame> {
    let library = |frame: &&StackFrame| {
        [
            "torch/distributed/",
            "torch/nn/",
            "torch/autograd/",
            "torch/utils/",
            "torch/csrc/",
            "torch/_",
        ]
        .iter()
        .any(|part| frame.file.contains(part))
    };
    frames.iter().find(|frame| !library(frame)).or(frames.first())
}

/// Formats `nccl:all_reduce [1024] -> [1024] Float`
pub(crate) fn call(entry: &DumpEntry) -> String {
    let mut types: Vec<&str> = entry
        .input_dtypes
        .iter()
        .chain(entry.output_dtypes.iter())
        .map(|t| &**t)
        .collect();
    types.sort_unstable();
    types.dedup();
    let mut text = format!(
        "{} {} -> {} {}",
        entry.profiling_name,
        shapes(&entry.input_sizes),
        shapes(&entry.output_sizes),
        types.join("/")
    );
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn ranks_are_written_in_runs() {
        assert_eq!(super::ranks(&[1, 4, 5, 6, 7, 9, 10]), "ranks 1, 4-7, 9, 10");
        assert_eq!(super::ranks(&[3]), "rank 3");
    }
}

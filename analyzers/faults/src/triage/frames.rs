//! Frames of a traceback as fields of a mark: packages that raised the exception, and their functions.
//!
//! Functions and packages of the frames, innermost first, hold facts that the exception text does not: a shape
//! mismatch below `load_state_dict` comes from a checkpoint, the same text in a layer from the program.

/// Maximum number of listed frames.
const TOLD: usize = 32;
/// Frameworks that own the training loop and call the program back. Many are run from a checkout; then the package is
/// a folder, not an installed one.
pub const FRAMEWORKS: [&str; 54] = [
    "accelerate",
    "allennlp",
    "areal",
    "axolotl",
    "byteps",
    "colossalai",
    "composer",
    "deepspeed",
    "detectron2",
    "determined",
    "dlrover",
    "elasticdl",
    "espnet",
    "espnet2",
    "fairseq",
    "fastai",
    "flagscale",
    "funasr",
    "gluonnlp",
    "horovod",
    "lightning",
    "llamafactory",
    "maxtext",
    "megatron",
    "mmaction",
    "mmcls",
    "mmcv",
    "mmdet",
    "mmdet3d",
    "mmengine",
    "mmocr",
    "mmpose",
    "mmpretrain",
    "mmseg",
    "nemo",
    "nemo_automodel",
    "nemo_rl",
    "openrlhf",
    "paddlenlp",
    "ppdet",
    "pytorch_lightning",
    "ray",
    "sagemaker_training",
    "sglang",
    "speechbrain",
    "tensor2tensor",
    "torchtitan",
    "torchtune",
    "transformers",
    "trl",
    "verl",
    "vissl",
    "vllm",
    "xtuner",
];
/// Package name for frames of the user's program.
pub(super) const PROGRAM: &str = "program";

/// Returns the package of a file: the name of an installed one, `python` for the standard library, a known framework
/// run from a checkout, or `program`.
pub(super) fn package(file: &str) -> &str {
    if file.starts_with('<') {
        return if is_cell(file) { PROGRAM } else { "python" };
    }
    let mut parts = file.split(['/', '\\']).peekable();
    let mut checkout = None;
    while let Some(part) = parts.next() {
        match part {
            "site-packages" | "dist-packages" => {
                let next = parts.peek().copied().unwrap_or_default();
                // An egg is a folder of one package; the package name is the next part.
                let name = if next.ends_with(".egg") {
                    parts.nth(1).unwrap_or(next)
                } else {
                    next
                };
                return name.strip_suffix(".py").unwrap_or(name);
            }
            // The last part is the file; a script of that name is the user's.
            _ if parts.peek().is_some() && FRAMEWORKS.contains(&part) => checkout = Some(part),
            _ => {}
        }
    }
    if let Some(name) = checkout {
        return name;
    }
    if is_standard(file) { "python" } else { PROGRAM }
}

/// Returns true for a notebook cell or interactive input in place of a file.
pub(super) fn is_cell(file: &str) -> bool {
    file.starts_with("<ipython-input-") || file == "<stdin>"
}

/// Returns true for files of the standard library. On Windows, `\lib\` counts only below an installation or
/// environment, because programs have folders of that name too.
pub(super) fn is_standard(file: &str) -> bool {
    let installed = |root: &str| {
        let root = root.to_ascii_lowercase();
        ["python", "conda", "env"].iter().any(|word| root.contains(word))
    };
    file.contains("/lib/python")
        || file.contains("/lib64/python")
        || file.split_once("\\lib\\").is_some_and(|(root, _)| installed(root))
}

/// Formats a list for a field of a mark: innermost first, equal neighbours once, at most 512 bytes.
pub(super) fn format_list<'a>(innermost_first: impl Iterator<Item = &'a str>) -> String {
    let mut list: Vec<&str> = Vec::new();
    for name in innermost_first.filter(|name| !name.is_empty()) {
        if list.last() != Some(&name) {
            list.push(name);
        }
        if list.len() == TOLD {
            break;
        }
    }
    let mut text = list.join(",");
    text.truncate(text.floor_char_boundary(512));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_installed_packages_checkouts_or_the_program() {
        for (file, wanted) in [
            (
                "/opt/conda/lib/python3.7/site-packages/torch/nn/parallel/distributed.py",
                "torch",
            ),
            (
                "/venv/lib/python3.7/site-packages/warprnnt-0.1-py3.7.egg/warprnnt/__init__.py",
                "warprnnt",
            ),
            (
                "C:\\Users\\u\\anaconda3\\lib\\site-packages\\paddle\\fluid\\layers.py",
                "paddle",
            ),
            ("/usr/lib/python3.10/multiprocessing/spawn.py", "python"),
            ("F:\\ana\\envs\\torch\\lib\\threading.py", "python"),
            ("E:\\CenterNet\\src\\lib\\datasets\\ctdet.py", "program"),
            ("<frozen importlib._bootstrap>", "python"),
            ("<ipython-input-2-b7fac14e>", "program"),
            ("<stdin>", "program"),
            ("/home/u/fairseq/fairseq/trainer.py", "fairseq"),
            ("/home/u/project/train.py", "program"),
            ("/home/u/project/ray.py", "program"),
            ("", "program"),
        ] {
            assert_eq!(package(file), wanted, "{file}");
        }
        assert_eq!(format_list(["a", "a", "b", "", "a"].into_iter()), "a,b,a");
    }
}

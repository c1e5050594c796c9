//! What the frames of a traceback tell: whose code failed, and what it was doing.

use rankguard_faults::triage::FRAMEWORKS;
use rankguard_model::Role;

use crate::{Scene, Sign};

/// What is raised by libraries on behalf of whoever called them: it says nothing of whose mistake it is.
const LIBRARIES: [&str; 22] = [
    "apex",
    "cupy",
    "einops",
    "flash_attn",
    "h5py",
    "jax",
    "jaxlib",
    "keras",
    "mxnet",
    "numba",
    "numpy",
    "paddle",
    "pandas",
    "PIL",
    "python",
    "safetensors",
    "scipy",
    "sklearn",
    "tensorflow",
    "torch",
    "torchvision",
    "triton",
];

/// Innermost functions among which the one that loads must be: further out, something else was done with what was loaded.
const NEAR: usize = 4;

/// Functions that packages put around others and that hand on what they were given.
const WRAPPERS: [&str; 9] = [
    "__call__",
    "_call_impl",
    "_wrapped_call_impl",
    "decorate_context",
    "error_handler",
    "inner",
    "inner_func",
    "wrapped",
    "wrapper",
];

/// The traceback of another rank whose end was cut off: the ranks of a program fail alike, and it knows the frames that the
/// exception of this one lost.
pub(crate) fn cut_off<'a>(scene: &'a Scene<'_>, sign: &Sign) -> Option<&'a Sign> {
    let is_exception = sign.mark().is_some_and(|mark| mark.signature.starts_with("py-"));
    if !is_exception {
        return None;
    }
    let rank = sign.rank();
    scene
        .marks()
        .map(|(_, other)| other)
        .filter(|other| other.rank() != rank)
        .find(|other| other.text.ends_with("(cut off)") && other.field("functions").is_some())
}

/// Whether an exception was raised below a function.
pub(crate) fn below(sign: &Sign, function: &str) -> bool {
    let functions = sign.field("functions");
    functions.is_some_and(|names| names.split(',').any(|name| name == function))
}

/// The package of the innermost frame.
pub(crate) fn innermost(sign: &Sign) -> Option<&str> {
    sign.field("packages")?.split(',').next()
}

/// The function of the program that reads or joins samples, where the exception was raised in it.
pub(crate) fn reads_samples(sign: &Sign) -> Option<&str> {
    let innermost = sign.field("functions")?.split(',').next()?;
    matches!(
        innermost,
        "__getitem__" | "getitem" | "__iter__" | "collate_fn" | "collate"
    )
    .then_some(innermost)
}

/// The function that loads weights or a saved state, where the exception was raised below one.
pub(crate) fn loader(sign: &Sign) -> Option<&str> {
    if sign
        .field("code")
        .is_some_and(|code| code.contains(".load_state_dict("))
    {
        return Some("load_state_dict");
    }
    sign.field("functions")?.split(',').take(NEAR).find(|function| {
        let name = function.to_ascii_lowercase();
        let reads = ["load", "restore", "resume", "upgrade"]
            .iter()
            .any(|verb| name.contains(verb));
        let saved = ["weight", "state_dict", "checkpoint", "ckpt", "pretrain", "param"];
        reads && saved.iter().any(|noun| name.contains(noun))
    })
}

/// What saved weights were looked up in, where the line that raised does that: a key that is not there is one that the
/// checkpoint and the model do not share.
pub(crate) fn looks_up_saved(sign: &Sign) -> Option<&str> {
    let saved = [
        "state_dict",
        "state_dict_metadata",
        "params_dict",
        "checkpoint",
        "ckpt",
        "state_dicts",
        "optim_state",
        "pretrained_dict",
    ];
    let code = sign.field("raising")?;
    looked_up_in(code).find(|name| {
        saved
            .iter()
            .any(|word| *name == *word || name.ends_with(&format!("_{word}")))
    })
}

/// The function that checks what the program was told, where an assertion failed in it.
pub(crate) fn checks_settings(sign: &Sign) -> Option<&str> {
    sign.field("functions")?.split(',').take(2).find(|function| {
        let name = function.to_ascii_lowercase();
        let checks = ["valid", "check", "parse", "verify", "assert"]
            .iter()
            .any(|verb| name.contains(verb));
        let told = ["arg", "config", "cfg", "option", "hparam", "setting", "flag"];
        let made = ["from_args", "from_cli_args"].contains(function);
        made || checks && told.iter().any(|noun| name.contains(noun))
    })
}

/// Whether the line that raised was making something in shared memory, which is a file system of its own.
pub(crate) fn makes_shared_memory(sign: &Sign) -> bool {
    let makers = [
        "SemLock(",
        "shm_open(",
        "SharedMemory(",
        "_share_filename",
        "_new_shared",
        "os.ftruncate(self._fd",
    ];
    sign.field("raising")
        .is_some_and(|code| makers.iter().any(|maker| code.contains(maker)))
}

/// Whether the line that raised asserts that a path is there.
pub(crate) fn asserts_a_path(sign: &Sign) -> bool {
    let asked = ["exists(", "isfile(", "isdir(", "is_file(", "is_dir("];
    sign.field("raising").is_some_and(|code| {
        let asserted = code.trim_start().strip_prefix("assert ");
        // Who asserts that nothing is there yet is told that something is.
        asserted.is_some_and(|code| !code.starts_with("not ") && asked.iter().any(|call| code.contains(call)))
    })
}

/// The call by which the line that raised removes or renames a file.
pub(crate) fn moves_a_file(sign: &Sign) -> Option<&'static str> {
    let calls = [
        "os.remove",
        "os.rename",
        "os.replace",
        "os.unlink",
        "shutil.move",
        "shutil.rmtree",
    ];
    let code = sign.field("raising")?;
    let called = |call: &&str| code.split_once(*call).is_some_and(|(_, rest)| rest.starts_with('('));
    calls.into_iter().find(called)
}

/// The function whose barrier a rank waited in, where it is one in which a single rank saves or prepares something for all.
pub(crate) fn waits_for_one(sign: &Sign) -> Option<&str> {
    let functions = sign.field("functions")?;
    let barrier = functions
        .split(',')
        .take(NEAR)
        .any(|name| name.contains("barrier") || name.contains("wait_for_everyone"));
    let alone = [
        "save",
        "checkpoint",
        "download",
        "main_process_first",
        "prepare",
        "preprocess",
        "tokenize",
        "cache",
    ];
    let one = functions
        .split(',')
        .take(2 * NEAR)
        .find(|name| alone.iter().any(|word| name.contains(word)));
    one.filter(|_| barrier)
}

/// The name of what settings were looked up in, where a line of code does that.
pub(crate) fn looks_up_setting(code: &str) -> Option<&str> {
    let settings = ["config", "cfg", "conf", "options", "opts", "opt", "hparams", "settings"];
    code.match_indices('[').find_map(|(at, _)| {
        let name = name_before(code, at);
        let quoted = code[at + 1..].starts_with(['\'', '"']);
        let lower = name.to_ascii_lowercase();
        let is_one = settings
            .iter()
            .any(|word| lower == *word || lower.ends_with(&format!("_{word}")));
        // What is registered under a name, and what the environment holds, is for whoever starts the program to say.
        let named = lower.contains("registry") || lower.contains("registered") || lower == "environ";
        (named || quoted && is_one).then_some(name)
    })
}

/// Whether a key that is not there is the name of a variable of the environment: `KeyError: 'MASTER_ADDR'`.
pub(crate) fn misses_a_variable(sign: &Sign) -> bool {
    let key = sign
        .text
        .strip_prefix("KeyError: '")
        .and_then(|rest| rest.strip_suffix('\''));
    let is_name = |name: &str| {
        name.contains('_')
            && name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    let Some(name) = key.filter(|name| is_name(name)) else {
        return false;
    };
    let asked = || {
        let first = |field| sign.field(field).and_then(|names| names.split(',').next());
        first("functions") == Some("__getitem__") && first("packages") == Some("python")
    };
    let known = [
        "CUDA_",
        "LOCAL_",
        "MASTER_",
        "NCCL_",
        "OMPI_",
        "PMI_",
        "SLURM_",
        "TORCHELASTIC_",
    ];
    name == "WORLD_SIZE" || known.iter().any(|prefix| name.starts_with(prefix)) || asked()
}

/// The table of labels that a line of code looked something up in.
pub(crate) fn looks_up_label(sign: &Sign) -> Option<&str> {
    let tables = [
        "o2i",
        "label2id",
        "label_to_id",
        "label2idx",
        "label_map",
        "class_to_idx",
        "class_to_ind",
        "class_to_index",
        "class2id",
        "cat2label",
    ];
    let code = sign.field("raising")?;
    looked_up_in(code).find(|name| tables.iter().any(|table| name.eq_ignore_ascii_case(table)))
}

/// The names of what a line of code looks something up in.
fn looked_up_in(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices('[').map(|(at, _)| name_before(code, at))
}

/// The name that ends at a place in a line of code.
fn name_before(code: &str, at: usize) -> &str {
    let start = code[..at]
        .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .map_or(0, |end| end + 1);
    &code[start..at]
}

/// The installed package whose own code asked another module for a name or an argument that is not there. In the program's
/// code that is the program's mistake; between two packages it is a pair of versions that do not fit.
pub(crate) fn mismatched_package<'a>(sign: &'a Sign, class: &str) -> Option<&'a str> {
    let text = sign.text.as_str();
    let asked = match class {
        // Who writes a `forward` passes it on; it is no interface between installed packages.
        "type-error" => text.contains("unexpected keyword argument") && !text.contains("forward()"),
        "attribute-error" => {
            let of_a_module = text.contains("module '") || text.contains("'module' object");
            // Text where bytes were: what gives it became another version.
            let decoded = text.contains("'str' object has no attribute 'decode'");
            of_a_module && text.contains("has no attribute") || decoded
        }
        "import-error" => text.contains("cannot import name"),
        _ => false,
    };
    let innermost = asked.then(|| innermost(sign))??;
    let installed = !matches!(innermost, "program" | "python");
    // A framework hands its users' arguments on, and so do wrappers: there the caller is who asked.
    let hands_on = class == "type-error"
        && (FRAMEWORKS.contains(&innermost) && text.contains("__init__()") && !wraps_model(sign)
            || sign
                .field("functions")
                .and_then(|names| names.split(',').next())
                .is_some_and(|name| WRAPPERS.contains(&name)));
    (installed && !hands_on).then_some(innermost)
}

/// Whether the line that raised put one of PyTorch's wrappers around the model, by arguments that the framework itself wrote:
/// one that the wrapper does not know is one of another version of PyTorch.
fn wraps_model(sign: &Sign) -> bool {
    let wrappers = ["DistributedDataParallel(", "FullyShardedDataParallel(", "GradScaler("];
    let code = sign.field("raising").unwrap_or_default();
    wrappers.iter().any(|wrapper| code.contains(wrapper)) && !code.contains("**")
}

/// The package whose GPU code was running when a kernel failed, where that is not the program's own. Programs bring kernels
/// of their own through PyTorch; TensorFlow and XLA run theirs only, and say so by the driver's names of errors.
pub(crate) fn kernel_owner<'a>(sign: &'a Sign, class: &str) -> Option<&'a str> {
    if !matches!(class, "cuda-illegal-memory-access" | "cuda-launch-failure") {
        return None;
    }
    if let Some(packages) = sign.field("packages") {
        let innermost = packages.split(',').next()?;
        let extension = !matches!(innermost, "program" | "python" | "torch" | "numpy");
        return extension.then_some(innermost);
    }
    // What a launch failure was is not told, and as a rule it is the program's.
    sign.text
        .contains("CUDA_ERROR_ILLEGAL_ADDRESS")
        .then_some("TensorFlow or XLA")
}

/// Whether tensors were being joined where they turned out to live apart: what a framework stacks or gathers for its program
/// is what the program gave it.
pub(crate) fn joins(sign: &Sign, class: &str) -> bool {
    let innermost = sign.field("functions").and_then(|names| names.split(',').next());
    let joins = |name: &str| {
        ["collate", "concat", "gather", "stack"]
            .iter()
            .any(|verb| name.contains(verb))
    };
    class == "device-mismatch" && innermost.is_some_and(joins)
}

/// Whether a model was called with what it does not take: it is raised where frameworks call it, and the program chose both.
pub(crate) fn calls_a_model(sign: &Sign, class: &str) -> bool {
    let calls = |name: &str| matches!(name, "_call_impl" | "_wrapped_call_impl" | "__call__");
    let innermost = sign.field("functions").and_then(|names| names.split(',').next());
    class == "type-error" && sign.text.contains("argument") && innermost.is_some_and(calls)
}

/// Whether what is not implemented is for the program to write: its own code says so, or a framework asks it for it.
pub(crate) fn is_the_programs_to_write(sign: &Sign, class: &str) -> bool {
    let raised = class == "not-implemented" && sign.text.starts_with("NotImplementedError");
    let asked = ["must be implemented", "must implement", "missing the required"];
    raised && (innermost(sign) == Some("program") || asked.iter().any(|words| sign.text.contains(words)))
}

/// Whether the file that is not there has a name that no program chooses: one that a framework wrote for itself in between.
pub(crate) fn looks_for_its_own(sign: &Sign) -> bool {
    let path = sign.text.trim_end_matches(['\'', '"']);
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    ["temp", "tmp"].iter().any(|word| name.contains(word))
}

/// Whether the program had a model loaded by its name alone, from whoever publishes it with its weights.
pub(crate) fn published(sign: &Sign) -> bool {
    let code = sign.field("code").unwrap_or_default();
    code.contains("hub.load(") && !code.contains("local")
}

/// Whether an exception was raised below a function that computes the loss.
pub(crate) fn computes_loss(sign: &Sign) -> bool {
    let functions = sign.field("functions");
    functions.is_some_and(|names| names.split(',').any(|name| name.to_ascii_lowercase().contains("loss")))
}

/// The installed package whose code raised it: the innermost that is neither a library nor the program.
pub(crate) fn installed(sign: &Sign) -> Option<&str> {
    let mut packages = sign.field("packages")?.split(',');
    let innermost = packages.find(|name| !LIBRARIES.contains(name))?;
    (innermost != "program").then_some(innermost)
}

/// The framework whose own code raised it: the innermost package that is no library is a framework's.
pub(crate) fn maker(sign: &Sign) -> Option<&str> {
    if sign.mark().is_some_and(|mark| mark.role != Role::Root) {
        return None;
    }
    // What fails on a sample fails on the data of the program, whoever reads it.
    let reads = |name: &str| matches!(name, "_worker_loop" | "__getitem__" | "fetch") || name.ends_with("_examples");
    if sign.field("functions").is_some_and(|names| names.split(',').any(reads)) {
        return None;
    }
    let innermost = sign
        .field("packages")?
        .split(',')
        .find(|name| !LIBRARIES.contains(name))?;
    FRAMEWORKS.contains(&innermost).then_some(innermost)
}

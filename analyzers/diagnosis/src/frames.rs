//! Interpretation of traceback frames: owner of the failed code, and its operation.

use rankguard_faults::classes;
use rankguard_faults::triage::FRAMEWORKS;
use rankguard_model::Role;

use crate::{FailureScene, Signal};

/// Libraries that raise on behalf of their caller: they do not show which code made the mistake.
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

/// Number of innermost functions among which the loader must be: further out, the loaded state was already in use.
const NEAR: usize = 4;

/// Wrapper functions that pass on their arguments.
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

/// Returns the truncated traceback of another rank: the ranks of a program fail alike, and it has the frames that
/// this exception lost.
pub(crate) fn cut_off<'a>(scene: &'a FailureScene<'_>, sign: &Signal) -> Option<&'a Signal> {
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

/// Returns true if the exception was raised below a function.
pub(crate) fn below(sign: &Signal, function: &str) -> bool {
    let functions = sign.field("functions");
    functions.is_some_and(|names| names.split(',').any(|name| name == function))
}

/// Returns the package of the innermost frame.
pub(crate) fn innermost(sign: &Signal) -> Option<&str> {
    sign.field("packages")?.split(',').next()
}

/// Returns the function that reads or collates samples, if the exception was raised in it.
pub(crate) fn reads_samples(sign: &Signal) -> Option<&str> {
    let innermost = sign.field("functions")?.split(',').next()?;
    matches!(
        innermost,
        "__getitem__" | "getitem" | "__iter__" | "collate_fn" | "collate"
    )
    .then_some(innermost)
}

/// Returns the function that loads weights or a saved state, if the exception was raised below it.
pub(crate) fn loader(sign: &Signal) -> Option<&str> {
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

/// Returns the name of the saved state in which the raising line looked up a key: a missing key is one that the
/// checkpoint and the model do not share.
pub(crate) fn looks_up_saved(sign: &Signal) -> Option<&str> {
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

/// Returns the function that validates settings, if an assertion failed in it.
pub(crate) fn checks_settings(sign: &Signal) -> Option<&str> {
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

/// Returns true if the raising line was creating shared memory, which is a file system of its own.
pub(crate) fn makes_shared_memory(sign: &Signal) -> bool {
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

/// Returns true if the raising line asserts that a path exists.
pub(crate) fn asserts_a_path(sign: &Signal) -> bool {
    let asked = ["exists(", "isfile(", "isdir(", "is_file(", "is_dir("];
    sign.field("raising").is_some_and(|code| {
        let asserted = code.trim_start().strip_prefix("assert ");
        // An assertion that nothing exists yet fails because something does.
        asserted.is_some_and(|code| !code.starts_with("not ") && asked.iter().any(|call| code.contains(call)))
    })
}

/// Returns the call by which the raising line removes or renames a file.
pub(crate) fn moves_a_file(sign: &Signal) -> Option<&'static str> {
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

/// Returns the function with the barrier in which a rank waited, if a single rank saves or prepares something for
/// all in it.
pub(crate) fn waits_for_one(sign: &Signal) -> Option<&str> {
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

/// Returns the name of the settings in which a source line looks up a key.
pub(crate) fn looks_up_setting(code: &str) -> Option<&str> {
    let settings = ["config", "cfg", "conf", "options", "opts", "opt", "hparams", "settings"];
    code.match_indices('[').find_map(|(at, _)| {
        let name = name_before(code, at);
        let quoted = code[at + 1..].starts_with(['\'', '"']);
        let lower = name.to_ascii_lowercase();
        let is_one = settings
            .iter()
            .any(|word| lower == *word || lower.ends_with(&format!("_{word}")));
        // Registry names and environment variables are chosen by the person who starts the program.
        let named = lower.contains("registry") || lower.contains("registered") || lower == "environ";
        (named || quoted && is_one).then_some(name)
    })
}

/// Returns true if the missing key is an environment variable: `KeyError: 'MASTER_ADDR'`.
pub(crate) fn misses_a_variable(sign: &Signal) -> bool {
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

/// Returns the label table in which the raising line looked up a key.
pub(crate) fn looks_up_label(sign: &Signal) -> Option<&str> {
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

/// Returns the names that a source line indexes.
fn looked_up_in(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices('[').map(|(at, _)| name_before(code, at))
}

/// Returns the name that ends at an offset of a source line.
fn name_before(code: &str, at: usize) -> &str {
    let start = code[..at]
        .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .map_or(0, |end| end + 1);
    &code[start..at]
}

/// Returns the installed package that requested a missing name or argument from another module in its own code. In
/// the program's code that is the program's mistake; between two packages their versions are incompatible.
pub(crate) fn mismatched_package<'a>(sign: &'a Signal, class: &str) -> Option<&'a str> {
    let text = sign.text.as_str();
    let asked = match class {
        // `forward` passes on the arguments of its caller; it is no interface between installed packages.
        classes::TYPE_ERROR => text.contains("unexpected keyword argument") && !text.contains("forward()"),
        classes::ATTRIBUTE_ERROR => {
            let of_a_module = text.contains("module '") || text.contains("'module' object");
            // Text in place of bytes: the package that returns it has another version.
            let decoded = text.contains("'str' object has no attribute 'decode'");
            of_a_module && text.contains("has no attribute") || decoded
        }
        classes::IMPORT_ERROR => text.contains("cannot import name"),
        _ => false,
    };
    let innermost = asked.then(|| innermost(sign))??;
    let installed = !matches!(innermost, "program" | "python");
    // Frameworks and wrappers pass on the arguments of their users: the caller made the request.
    let hands_on = class == classes::TYPE_ERROR
        && (FRAMEWORKS.contains(&innermost) && text.contains("__init__()") && !wraps_model(sign)
            || sign
                .field("functions")
                .and_then(|names| names.split(',').next())
                .is_some_and(|name| WRAPPERS.contains(&name)));
    (installed && !hands_on).then_some(innermost)
}

/// Returns true if the raising line put a PyTorch wrapper around the model with arguments that the framework wrote:
/// an unknown one belongs to another version of PyTorch.
fn wraps_model(sign: &Signal) -> bool {
    let wrappers = ["DistributedDataParallel(", "FullyShardedDataParallel(", "GradScaler("];
    let code = sign.field("raising").unwrap_or_default();
    wrappers.iter().any(|wrapper| code.contains(wrapper)) && !code.contains("**")
}

/// Returns the owner of the GPU code that was running when a kernel failed, if it is not the program. Programs run
/// their own kernels through PyTorch; TensorFlow and XLA run only theirs, and print the driver's error names.
pub(crate) fn kernel_owner<'a>(sign: &'a Signal, class: &str) -> Option<&'a str> {
    if !matches!(
        class,
        classes::CUDA_ILLEGAL_MEMORY_ACCESS | classes::CUDA_LAUNCH_FAILURE
    ) {
        return None;
    }
    if let Some(packages) = sign.field("packages") {
        let innermost = packages.split(',').next()?;
        let extension = !matches!(innermost, "program" | "python" | "torch" | "numpy");
        return extension.then_some(innermost);
    }
    // A launch failure without details is usually the program's.
    sign.text
        .contains("CUDA_ERROR_ILLEGAL_ADDRESS")
        .then_some("TensorFlow or XLA")
}

/// Returns true if tensors on different devices were being joined: what a framework stacks or gathers comes from the
/// program.
pub(crate) fn joins(sign: &Signal, class: &str) -> bool {
    let innermost = sign.field("functions").and_then(|names| names.split(',').next());
    let joins = |name: &str| {
        ["collate", "concat", "gather", "stack"]
            .iter()
            .any(|verb| name.contains(verb))
    };
    class == classes::DEVICE_MISMATCH && innermost.is_some_and(joins)
}

/// Returns true if a model was called with arguments it does not accept: frameworks raise it, but the program chose
/// both.
pub(crate) fn calls_a_model(sign: &Signal, class: &str) -> bool {
    let calls = |name: &str| matches!(name, "_call_impl" | "_wrapped_call_impl" | "__call__");
    let innermost = sign.field("functions").and_then(|names| names.split(',').next());
    class == classes::TYPE_ERROR && sign.text.contains("argument") && innermost.is_some_and(calls)
}

/// Returns true if the program should have implemented the missing method: its own code raised it, or a framework
/// requires it.
pub(crate) fn is_the_programs_to_write(sign: &Signal, class: &str) -> bool {
    let raised = class == classes::NOT_IMPLEMENTED && sign.text.starts_with("NotImplementedError");
    let asked = ["must be implemented", "must implement", "missing the required"];
    raised && (innermost(sign) == Some("program") || asked.iter().any(|words| sign.text.contains(words)))
}

/// Returns true if the missing file has a temporary name, which a framework and not the program chose.
pub(crate) fn looks_for_its_own(sign: &Signal) -> bool {
    let path = sign.text.trim_end_matches(['\'', '"']);
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    ["temp", "tmp"].iter().any(|word| name.contains(word))
}

/// Returns true if the program loaded a published model with its weights by name.
pub(crate) fn published(sign: &Signal) -> bool {
    let code = sign.field("code").unwrap_or_default();
    code.contains("hub.load(") && !code.contains("local")
}

/// Returns true if the exception was raised below a function that computes the loss.
pub(crate) fn computes_loss(sign: &Signal) -> bool {
    let functions = sign.field("functions");
    functions.is_some_and(|names| names.split(',').any(|name| name.to_ascii_lowercase().contains("loss")))
}

/// Returns the installed package that raised it: the innermost that is neither a library nor the program.
pub(crate) fn installed(sign: &Signal) -> Option<&str> {
    let mut packages = sign.field("packages")?.split(',');
    let innermost = packages.find(|name| !LIBRARIES.contains(name))?;
    (innermost != "program").then_some(innermost)
}

/// Returns the framework that raised it: the innermost package that is no library, if it is a framework.
pub(crate) fn maker(sign: &Signal) -> Option<&str> {
    if sign.mark().is_some_and(|mark| mark.role != Role::Root) {
        return None;
    }
    // A failure on a sample is a failure of the program's data, independent of the reader.
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

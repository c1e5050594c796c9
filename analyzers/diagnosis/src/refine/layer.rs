//! Layer of a failure, if its circumstances show another one than its class.

use rankguard_faults::classes;
use rankguard_model::ProcessExit;

use crate::first_rank::NODE_RANKS;
use crate::frames::{
    calls_a_model, computes_loss, installed, is_the_programs_to_write, joins, kernel_owner, looks_for_its_own, maker,
    published,
};
use crate::stopped_ranks::{is_stopped, stands_for_several};
use crate::{CauseCandidate, FailureScene, Signal};

/// Classes of code mistakes; the circumstances show which code made it.
const CODE: [&str; 19] = [
    classes::ASSERTION_ERROR,
    classes::ATTRIBUTE_ERROR,
    classes::AUTOGRAD_ERROR,
    classes::COLLECTIVE_ARGUMENT_ERROR,
    classes::CUDA_ILLEGAL_MEMORY_ACCESS,
    classes::CUDA_INVALID_DEVICE_ORDINAL,
    classes::DEVICE_MISMATCH,
    classes::DTYPE_MISMATCH,
    classes::KEY_ERROR,
    classes::NCCL_INVALID_USAGE,
    classes::NOT_IMPLEMENTED,
    classes::NUMERICAL_ERROR,
    classes::PYTHON_INDEX_ERROR,
    classes::PYTHON_NONE_DEREFERENCE,
    classes::PYTHON_NAME_ERROR,
    classes::PYTHON_VALUE_ERROR,
    classes::RACE_ON_SHARED_FILESYSTEM,
    classes::TYPE_ERROR,
    classes::UNCAUGHT_EXCEPTION,
];

/// Layer of a verdict on a signal of an unknown sender.
const UNKNOWN_LAYER: &str = "unknown";

/// Classes in which ranks report that they did not find each other.
const MEETING: [&str; 5] = [
    classes::CONNECTION_REFUSED,
    classes::CONNECTION_RESET,
    classes::CONNECTION_TIMEOUT,
    classes::REMOTE_WORKER_LOST,
    classes::RENDEZVOUS_FAILURE,
];

/// Rule that derives a layer from the text of a message.
struct TextRule {
    classes: &'static [&'static str],
    /// Lower-case texts, one of which must occur.
    words: &'static [&'static str],
    layer: &'static str,
    why: &'static str,
}

const SAID: [TextRule; 9] = [
    TextRule {
        classes: &[classes::ASSERTION_ERROR],
        words: &["'status': 'inflight'"],
        layer: "framework",
        why: "A parameter was asked for while the framework itself was still fetching it.",
    },
    TextRule {
        classes: &[classes::COLLECTIVE_ARGUMENT_ERROR],
        words: &["must be contiguous"],
        layer: "framework",
        why: "How a tensor lies in memory is for the library that passes it on to see to.",
    },
    TextRule {
        classes: &[classes::ARGPARSE_ERROR],
        words: &["invalid optional value", "invalid typing."],
        layer: "framework",
        why: "The parser calls a type of the typing module to read the value, which no value passes.",
    },
    TextRule {
        classes: &[classes::CUDA_DEVICE_ASSERT],
        words: &["classnllcriterion", "n_classes", "nll_loss", "num_classes"],
        layer: "user-data",
        why: "The loss refused a label that is no class, and labels come with the data.",
    },
    TextRule {
        classes: &[classes::PERMISSION_DENIED],
        words: &["nfs", "lustre", "root_squash", "volume"],
        layer: "storage",
        why: "The file system itself refuses, whoever asks.",
    },
    TextRule {
        classes: &[classes::RENDEZVOUS_FAILURE, classes::CONNECTION_REFUSED],
        words: &["operation not permitted", "errno: 1 "],
        layer: "platform",
        why: "Sockets are not permitted where the program runs, so no network was even tried.",
    },
    TextRule {
        classes: &[classes::RENDEZVOUS_FAILURE],
        words: &["rendezvousclosederror"],
        layer: "framework",
        why: "The launcher reached the others and found that the meeting is over, which no network decides.",
    },
    TextRule {
        classes: &[classes::NCCL_SYSTEM_ERROR, classes::RENDEZVOUS_FAILURE],
        words: &["address family not supported"],
        layer: "platform",
        why: "Where the program runs there are no sockets of that kind, so no network was even tried.",
    },
    TextRule {
        classes: &[classes::IB_RDMA_ERROR],
        words: &["ibv_create_", "ibv_reg_mr", "ibv_alloc_", "locked memory"],
        layer: "platform",
        why: "The machine refused to set up the adapter's resources, so no link was even tried.",
    },
];

/// Returns a layer other than the default of the class, with the reason. The last argument are the
/// texts of all supporting signs.
pub(super) fn of<'s>(
    scene: &FailureScene<'_>,
    candidate: &CauseCandidate,
    sign: &Signal,
    said: impl Iterator<Item = &'s str> + Clone,
) -> Option<(&'static str, String)> {
    let class = candidate.class.as_str();
    if class == classes::KILLED_BY_SIGNAL && scene.has_fault_ends {
        let is_reported = matches!(sign.exit(), Some((_, ProcessExit::Code(_))));
        let why = if sign.synthetic && scene.has_local_causes() {
            "A drill sent the signal, so it belongs to no layer."
        } else if is_reported && scene.has_local_causes() {
            "Nothing shows that a signal was sent, or by whom, so it belongs to no known layer."
        } else {
            "Nothing shows who sent the signal, so it belongs to no known layer."
        };
        return Some((UNKNOWN_LAYER, why.to_owned()));
    }
    if class == classes::RANK_EXIT_UNKNOWN && scene.has_local_causes() {
        let why = "The program ended without a message, so its end belongs to no known layer.";
        return Some((UNKNOWN_LAYER, why.to_owned()));
    }
    if is_stopped(scene, candidate) {
        let why = if stands_for_several(scene, candidate) {
            "A signal stopped their processes (state T), and nothing shows who sent it, so it belongs to no known layer."
        } else {
            "A signal stopped its process (state T), and nothing shows who sent it, so it belongs to no known layer."
        };
        return Some((UNKNOWN_LAYER, why.to_owned()));
    }
    // The layer of the class is that of the machine, to which a slow rank alone does not point.
    if class == classes::STRAGGLER
        && scene.has_local_causes()
        && !sleeps(scene, candidate)
        && let Some(rank) = candidate.blamed.rank()
    {
        let why = format!("Nothing shows why rank {rank} is slow, so it belongs to no known layer.");
        return Some((UNKNOWN_LAYER, why));
    }
    let code = CODE.contains(&class);
    let asserted = || said.clone().any(|text| text.contains("INTERNAL ASSERT FAILED"));
    if (code || class == classes::RENDEZVOUS_FAILURE) && asserted() {
        let why = "An internal assertion of the framework failed, which no program is meant to reach.".to_owned();
        return Some(("framework", why));
    }
    if is_the_programs_to_write(sign, class) {
        let why = "What is not implemented is for the program to write.".to_owned();
        return Some(("user-code", why));
    }
    if (code && !joins(sign, class) && !calls_a_model(sign, class)
        || class == classes::FILE_NOT_FOUND && looks_for_its_own(sign))
        && let Some(framework) = maker(sign)
    {
        let why = format!("The code that failed is that of {framework}, with no line of the program below it.");
        return Some(("framework", why));
    }
    if let Some(package) = kernel_owner(sign, class) {
        let why = format!("The kernel that failed is one of {package}, not of the program.");
        return Some(("framework", why));
    }
    if class == classes::RACE_ON_SHARED_FILESYSTEM
        && let Some(package) = installed(sign)
    {
        let why = format!("It is {package} that creates on every rank what one rank should create.");
        return Some(("framework", why));
    }
    if (code || class == classes::CHECKPOINT_MISMATCH) && published(sign) {
        let why = "The program only names a model; whoever publishes it brings its code and its weights.".to_owned();
        return Some(("framework", why));
    }
    if MEETING.contains(&class) && scene.first_of("check-failure-stack").is_some() {
        let why =
            "A process of the framework ended itself by a check of its own, and the others did not find it.".to_owned();
        return Some(("framework", why));
    }
    if class == classes::KERNEL_CRASH
        && let Some(module) = scene
            .first_of("stopped-in-driver")
            .and_then(|sign| sign.field("module"))
    {
        let why =
            format!("The kernel stopped in the code of the driver {module}, which is installed and not built in.");
        return Some(("platform", why));
    }
    if class == classes::CUDA_DEVICE_ASSERT && computes_loss(sign) {
        let why =
            "It was noticed while the loss was computed, where labels meet classes, and labels come with the data.";
        return Some(("user-data", why.to_owned()));
    }
    if matches!(class, classes::HANG_STALLED_RANKS | classes::STRAGGLER) && sleeps(scene, candidate) {
        let why =
            "The rank that the others waited for says itself that it slept, which is the program's doing.".to_owned();
        return Some(("user-code", why));
    }
    if class == classes::GPU_NOT_VISIBLE && others_see_theirs(scene, candidate) {
        let why =
            "Another rank of the same program has a GPU, so more ranks were started than there are GPUs.".to_owned();
        return Some(("user-code", why));
    }
    let available = || sign.field("available").and_then(|count| count.parse::<u32>().ok());
    if class == classes::GPU_NOT_VISIBLE && available().is_some_and(|count| count > 0) {
        let why = "There are GPUs, only fewer than the program asks for.".to_owned();
        return Some(("user-code", why));
    }
    let mut rules = SAID.iter().filter(|rule| rule.classes.contains(&class)).peekable();
    rules.peek()?;
    let texts: Vec<String> = said.map(str::to_ascii_lowercase).collect();
    let said = |word: &&str| texts.iter().any(|text| text.contains(word));
    let rule = rules.find(|rule| rule.words.iter().any(said))?;
    Some((rule.layer, rule.why.to_owned()))
}

/// Returns true if the late rank reports that it slept.
fn sleeps(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> bool {
    let own = |sign: &Signal| candidate.root_rank.is_some() && sign.rank() == candidate.root_rank;
    scene
        .marks()
        .any(|(_, sign)| own(sign) && sign.text.to_ascii_lowercase().contains("sleeping"))
}

/// Returns true if only this rank lacks its GPU, and a lower rank on the node reports other things.
fn others_see_theirs(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> bool {
    // If nodes are unknown, the first few ranks share one.
    let Some(rank) = candidate.root_rank.filter(|rank| rank.0 < NODE_RANKS) else {
        return false;
    };
    let first = &scene.signs[candidate.first];
    let misses = |sign: &Signal| sign.class() == first.class();
    let before = |sign: &Signal| sign.rank().is_some_and(|other| other < rank) && sign.node() == first.node();
    let mut others = scene
        .marks()
        .map(|(_, sign)| sign)
        .filter(|sign| before(sign))
        .peekable();
    others.peek().is_some() && !others.any(misses)
}

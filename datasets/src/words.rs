//! Canonical job states for the state names of all schedulers.

/// Maps a state to its canonical name: `completed`, `failed`, `cancelled`, `timeout`, `node_fail`,
/// `out_of_memory`, `preempted`, `running` (not ended, holds nodes), `pending`, or `other` for any other state.
pub(crate) fn state(raw: &str) -> &'static str {
    // `CANCELLED by 1000`, `CANCELLED+`.
    let word = raw.split([' ', '+']).next().unwrap_or("").to_ascii_uppercase();
    match word.as_str() {
        "COMPLETED" | "COMPLETE" | "PASS" | "PASSED" | "SUCCEEDED" | "TERMINATED" | "CD" => "completed",
        "FAILED" | "FAIL" | "BOOT_FAIL" | "LAUNCH_FAILED" | "RECONFIG_FAIL" | "SPECIAL_EXIT" | "F" | "BF" => "failed",
        "CANCELLED" | "CANCELED" | "KILLED" | "STOPPED" | "CA" => "cancelled",
        "TIMEOUT" | "DEADLINE" | "TO" | "DL" => "timeout",
        "NODE_FAIL" | "NF" => "node_fail",
        "OUT_OF_MEMORY" | "OUT_OF_ME" | "OOM" => "out_of_memory",
        "PREEMPTED" | "PR" => "preempted",
        "RUNNING" | "R" | "COMPLETING" | "CONFIGURING" | "RESIZING" | "SIGNALING" | "STAGE_OUT" | "SUSPENDED" => {
            "running"
        }
        "PENDING" | "WAITING" | "PD" => "pending",
        _ => "other",
    }
}

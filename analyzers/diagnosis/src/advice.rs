//! Advice for messages that need another action than their class in general.

use rankguard_model::RecommendedMitigation;

use crate::Signal;

/// Action for the cause that one message states.
struct MessageAdvice {
    /// Signature of the message.
    signature: &'static str,
    /// Id of the action; none for that of the class.
    action: Option<&'static str>,
    /// Instruction to the operator, a sentence or more.
    advice: &'static str,
}

/// Advice by message.
const MESSAGES: [MessageAdvice; 9] = [
    // https://docs.ceph.com/en/latest/cephfs/eviction/
    MessageAdvice {
        signature: "ceph-evicted",
        action: Some("replace-node"),
        advice: "Restart on another node from the last checkpoint that is complete: the server evicted this client, and what the \
                 client had not written is lost. Waiting does not help; mount the file system of this node again.",
    },
    // https://docs.habana.ai/en/latest/PyTorch/Reference/Debugging_Guide/Model_Troubleshooting.html
    MessageAdvice {
        signature: "gaudi-device-taken",
        action: None,
        advice: "End the process that holds the device (`hl-smi` lists the processes of each), or start on free devices.",
    },
    MessageAdvice {
        signature: "gaudi-graph-failed",
        action: None,
        advice: "Read the logs of the graph compiler (HABANA_LOGS) and the kernel log: the status is the same for a graph that cannot \
                 be compiled and for a fault of the device, which the driver (habanalabs) reports.",
    },
    // https://apptainer.org/docs/user/main/bind_paths_and_mounts.html
    MessageAdvice {
        signature: "mount-point-not-in-image",
        action: Some("fix-user-config"),
        advice: "Create the directory in the image, or start the container without --writable (with overlay or underlay, the runtime \
                 creates it). Another node starts the same image and fails alike.",
    },
    // https://ofiwg.github.io/libfabric/main/man/fi_getinfo.3.html
    MessageAdvice {
        signature: "ofi-no-provider",
        action: Some("fix-environment"),
        advice: "Give the container the devices of the network adapter (/dev/infiniband) and the library of its provider; `fi_info` in \
                 the container lists the providers that it finds. libfabric found none, so no link and no peer was tried.",
    },
    // https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/
    MessageAdvice {
        signature: "probe-failed",
        action: Some("diagnose"),
        advice: "Find what kept the container from answering its probe, for which the kubelet ended it: read the log of its previous \
                 run, and the memory and the disks of its node. Allow more time (timeoutSeconds, failureThreshold) only then.",
    },
    // https://slurm.schedmd.com/slurm.conf.html, AuthInfo
    MessageAdvice {
        signature: "slurm-launch-expired",
        action: Some("resubmit"),
        advice: "Compare the clock of that node with the controller's, and read slurmd's log there: the credential expires after \
                 cred_expire (AuthInfo, 120 s), because clocks differ or because the launch is slow. Then submit again.",
    },
    // https://slurm.schedmd.com/slurm.conf.html, SlurmdSpoolDir
    MessageAdvice {
        signature: "slurm-spool-lost",
        action: Some("contact-platform"),
        advice: "Hand over to whoever runs the scheduler: slurmd on that node lost its own copy of the batch script (SlurmdSpoolDir). \
                 The script of the job needs no change; submit it again on other nodes.",
    },
    // https://slurm.schedmd.com/slurm.conf.html, UnkillableStepTimeout
    MessageAdvice {
        signature: "slurm-step-unkillable",
        action: Some("replace-node"),
        advice: "Keep jobs off the node until its processes have ended: Slurm drains it (`Kill task failed`). Read there what they wait \
                 for (`cat /proc/PID/stack`, kernel log): storage, network or a driver.",
    },
];

/// Returns the mitigation for a message, based on that of its class; none if that of the class applies.
pub(crate) fn of_message(first: &Signal, general: &RecommendedMitigation) -> Option<RecommendedMitigation> {
    let message = MESSAGES.iter().find(|message| first.is_signed(message.signature))?;
    Some(RecommendedMitigation {
        action: message.action.map_or_else(|| general.action.clone(), str::to_owned),
        advice: message.advice.to_owned(),
        advice_on_return: String::new(),
        recommended_by: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use rankguard_faults::Catalogue;

    use super::*;

    #[test]
    fn each_message_and_action_is_known() {
        let known = Catalogue::builtin();
        for message in &MESSAGES {
            let mut signatures = known.signatures().iter();
            assert!(
                signatures.any(|signature| signature.id == message.signature),
                "{}",
                message.signature
            );
            let action = message.action.is_none_or(|action| known.action(action).is_some());
            assert!(action, "{:?}", message.action);
        }
    }
}

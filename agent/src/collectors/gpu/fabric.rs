//! Fabric that connects the GPUs of a node or rack: registration state and health of a device.

use std::mem;

use nvml_wrapper::device::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY, NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW,
    NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION, NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY,
    NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY, NVML_GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION,
    NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY, NVML_GPU_FABRIC_STATE_COMPLETED, NVML_GPU_FABRIC_STATE_NOT_SUPPORTED,
    nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t, nvmlReturn_enum_NVML_SUCCESS,
};

use super::reader::DeviceReader;

/// Two-bit flags of the health mask: 0 unknown, 1 true, 2 false.
const PARTS: [(u32, &str); 4] = [
    (NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW, "gpu.fabric_degraded"),
    (
        NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY,
        "gpu.fabric_route_recovery",
    ),
    (
        NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY,
        "gpu.fabric_route_unhealthy",
    ),
    (
        NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY,
        "gpu.fabric_access_timeouts",
    ),
];

/// Fabric state of a device. `health` and `summary` are 0 if the driver does not report them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FabricState {
    state: u32,
    /// Result of the registration once it has completed; 0 is success.
    status: u32,
    health: u32,
    summary: u32,
}

pub(super) fn read(device: &Device<'_>, reader: &mut DeviceReader<'_>) -> Result<(), NvmlError> {
    let Some(fabric) = reader.call("read the state of the fabric", || ask(device))? else {
        return Ok(());
    };
    fabric.put(|name, value| reader.put(name, value));
    Ok(())
}

/// Queries the newest structure version that the driver knows; each one extends the one before.
fn ask(device: &Device<'_>) -> Result<FabricState, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuFabricInfoV.as_ref())?;
    let mut last = Err(NvmlError::NotSupported);
    for (number, size) in [
        (3, mem::size_of::<nvmlGpuFabricInfo_v3_t>()),
        (2, mem::size_of::<nvmlGpuFabricInfo_v2_t>()),
    ] {
        // SAFETY: plain numbers, for which all-zero bytes are valid.
        let mut info: nvmlGpuFabricInfo_v3_t = unsafe { mem::zeroed() };
        // As NVML_STRUCT_VERSION has it: the size, and the version in the highest byte.
        info.version = u32::try_from(size).unwrap_or(0) | number << 24;
        // SAFETY: the handle is of this library, which lives as long as the device does; the library writes at most the
        // size in `version`, which the structure has.
        match nvml_try(unsafe { call(device.handle(), &raw mut info) }) {
            Ok(()) => {
                return Ok(FabricState {
                    state: info.state.into(),
                    status: info.status,
                    health: info.healthMask,
                    summary: info.healthSummary.into(),
                });
            }
            Err(NvmlError::GpuLost) => return Err(NvmlError::GpuLost),
            Err(error) => last = Err(error),
        }
    }
    last
}

impl FabricState {
    /// Stores the readings; none for a device without a fabric.
    fn put(self, mut put: impl FnMut(&str, f64)) {
        if self.state == NVML_GPU_FABRIC_STATE_NOT_SUPPORTED {
            return;
        }
        let mut put_bool = |name: &str, is: bool| put(name, f64::from(u8::from(is)));
        let joined = self.state == NVML_GPU_FABRIC_STATE_COMPLETED;
        put_bool("gpu.fabric_pending", !joined);
        put_bool(
            "gpu.fabric_failed",
            joined && self.status != nvmlReturn_enum_NVML_SUCCESS,
        );
        for (shift, name) in PARTS {
            let part = (self.health >> shift) & 0b11;
            // 0 means unknown.
            if part != 0 {
                put_bool(name, part == 1);
            }
        }
        let configuration = (self.health >> NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION)
            & NVML_GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION;
        if configuration != 0 {
            // From 2 on each number is a kind of misconfiguration; 1 is none.
            put("gpu.fabric_misconfigured", f64::from(configuration - 1));
        }
        if self.summary != 0 {
            let unhealthy = self.summary == NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY;
            put("gpu.fabric_unhealthy", f64::from(u8::from(unhealthy)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fabric: FabricState) -> Vec<String> {
        let mut told = Vec::new();
        fabric.put(|name, value| told.push(format!("{} {value}", name.trim_start_matches("gpu.fabric_"))));
        told
    }

    #[test]
    fn what_is_not_known_of_the_fabric_is_left_out() {
        assert!(told(FabricState::default()).is_empty());
        let joining = FabricState {
            state: 2,
            status: 999,
            ..FabricState::default()
        };
        assert_eq!(told(joining), ["pending 1", "failed 0"]);
        let failed = FabricState { state: 3, ..joining };
        assert_eq!(told(failed), ["pending 0", "failed 1"]);
    }

    #[test]
    fn the_mask_is_read_part_by_part() {
        let fabric = FabricState {
            state: 3,
            // Bandwidth degraded, no recovery, route unhealthy, time-outs unknown, no partition.
            health: 0b01 | 0b10 << 2 | 0b01 << 4 | 4 << 8,
            summary: 2,
            ..FabricState::default()
        };
        let wanted = [
            "pending 0",
            "failed 0",
            "degraded 1",
            "route_recovery 0",
            "route_unhealthy 1",
            "misconfigured 3",
            "unhealthy 1",
        ];
        assert_eq!(told(fabric), wanted);
    }
}

//! Links between a GPU and its CPU (NVLink-C2C), if the device has some: active links and error counts.

use nvml_wrapper::device::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_C2C_LINK_ERROR_INTR, NVML_FI_DEV_C2C_LINK_ERROR_REPLAY, NVML_FI_DEV_C2C_LINK_GET_STATUS,
};

use super::fields::{self, FieldScope};
use super::reader::DeviceReader;

/// Metric of the number of links, which is read with the fields of the device.
pub(super) const LINKS: &str = "gpu.c2c_links";

/// Limit on the number of links, more than any device has, because the driver's number is foreign.
const LINKS_MAX: u32 = 64;

/// Fields of one link; status 1 is an active link.
const OF_A_LINK: [(u32, &str); 3] = [
    (NVML_FI_DEV_C2C_LINK_GET_STATUS, "gpu.c2c_links_active"),
    (NVML_FI_DEV_C2C_LINK_ERROR_INTR, "gpu.c2c_errors"),
    (NVML_FI_DEV_C2C_LINK_ERROR_REPLAY, "gpu.c2c_replays"),
];

/// Stores the sums over all links, which are read in one call.
pub(super) fn read(device: &Device<'_>, reader: &mut DeviceReader<'_>) -> Result<(), NvmlError> {
    let count = reader.get(LINKS).map_or(0, |count| count as u32).min(LINKS_MAX);
    if count == 0 {
        return Ok(());
    }
    let of_link = |link| OF_A_LINK.map(|(field, _)| (field, FieldScope::Link(link)));
    let wanted: Vec<(u32, FieldScope)> = (0..count).flat_map(of_link).collect();
    let found = reader.call("read the C2C links", || fields::values(device, &wanted))?;
    let found = found.unwrap_or_default();
    for (place, (_, name)) in OF_A_LINK.iter().enumerate() {
        let values = found.iter().skip(place).step_by(OF_A_LINK.len()).flatten();
        if let Some(sum) = values.copied().reduce(|sum, more| sum + more) {
            reader.put(name, sum);
        }
    }
    Ok(())
}

//! MIG devices: the partitions of a GPU, each with its own memory, errors and processes.
//!
//! The list of MIG devices is read at every poll; their values are read for a few at a time, so that a node with many
//! partitions is not read many times as much. A value remains until the device's next turn.
//!
//! Errors are those that the driver reports for a partition: uncorrected errors of its caches since the driver was
//! loaded. Memory errors are reported for the whole GPU only.

use std::collections::BTreeMap;
use std::ffi::c_uint;

use nvml_wrapper::device::Device;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, MemoryLocation};
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::current::CurrentCall;
use super::protocol::{DevicePoll, GpuReadings, MigDeviceReading};
use super::reader::DeviceReader;

/// Limit on the number of partitions, more than any device supports, because the driver's number is foreign.
const PARTS_MAX: u32 = 16;

/// MIG devices that are read in one poll, besides new ones; with the most that exist, each is read every four polls.
const A_LOOK: usize = 2;

/// Last values of one device's partitions, by the library's index.
#[derive(Debug, Default)]
pub(super) struct MigReadings {
    told: BTreeMap<u32, MigDeviceReading>,
    /// Index to continue at in the next poll.
    next: u32,
}

impl MigReadings {
    /// Reads the MIG mode, its pending change at the next reset, and the partitions.
    pub(super) fn read(
        &mut self,
        device: &Device<'_>,
        look: &mut DevicePoll,
        current: &CurrentCall,
    ) -> Result<(), NvmlError> {
        let mut reader = DeviceReader::new(&look.address, &mut look.readings, current);
        let parts = present(device, &mut reader)?;
        self.told.retain(|index, _| parts.contains_key(index));
        for index in self.turn(&parts) {
            let Some(part) = parts.get(&index) else { continue };
            match ask(part, &look.address, current)? {
                Some(told) => self.told.insert(index, told),
                None => self.told.remove(&index),
            };
        }
        look.parts = self.told.values().cloned().collect();
        Ok(())
    }

    /// Returns the indexes to read now: those never read, and the next ones in turn.
    fn turn<T>(&mut self, parts: &BTreeMap<u32, T>) -> Vec<u32> {
        let fresh = parts.keys().filter(|index| !self.told.contains_key(index));
        let mut asked: Vec<u32> = fresh.copied().collect();
        let round = parts.range(self.next..).chain(parts.range(..self.next));
        let turn: Vec<u32> = round.map(|(index, _)| *index).take(A_LOOK).collect();
        self.next = turn.last().map_or(0, |last| last + 1);
        asked.extend(turn);
        asked.sort_unstable();
        asked.dedup();
        asked
    }
}

/// Returns the present partitions by index; none if MIG is off.
fn present<'a>(device: &Device<'a>, reader: &mut DeviceReader<'_>) -> Result<BTreeMap<u32, Device<'a>>, NvmlError> {
    let mut parts = BTreeMap::new();
    let Some(mode) = reader.call("read the MIG mode", || device.mig_mode())? else {
        return Ok(parts);
    };
    reader.put("gpu.mig", f64::from(mode.current));
    reader.put_bool("gpu.mig_change_pending", mode.current != mode.pending);
    if mode.current == 0 {
        return Ok(parts);
    }
    let most = reader.call("count the MIG devices", || device.mig_device_count())?;
    for index in 0..most.unwrap_or(0).min(PARTS_MAX) {
        let found = reader.call("get a MIG device", || device.mig_device_by_index(index))?;
        parts.extend(found.map(|part| (index, part)));
    }
    reader.put("gpu.mig_devices", parts.len() as f64);
    Ok(parts)
}

/// Reads one partition; none if the driver does not identify it.
fn ask(part: &Device<'_>, gpu: &str, current: &CurrentCall) -> Result<Option<MigDeviceReading>, NvmlError> {
    let mut readings = GpuReadings::new();
    let mut reader = DeviceReader::new(gpu, &mut readings, current);
    let lib = part.nvml().lib();
    let gpu_instance = reader.call("read a MIG device's GPU instance", || {
        id(part, nvml_sym(lib.nvmlDeviceGetGpuInstanceId.as_ref())?)
    })?;
    let compute_instance = reader.call("read a MIG device's compute instance", || {
        id(part, nvml_sym(lib.nvmlDeviceGetComputeInstanceId.as_ref())?)
    })?;
    let (Some(gpu_instance), Some(compute_instance)) = (gpu_instance, compute_instance) else {
        return Ok(None);
    };
    let uuid = reader.call("read a MIG device's UUID", || part.uuid())?;
    if let Some(memory) = reader.call("read a MIG device's memory", || part.memory_info())? {
        reader.put("gpu.memory_bytes", memory.total as f64);
        reader.put("gpu.memory_used_bytes", memory.used as f64);
    }
    let errors = reader.call("read a MIG device's ECC errors", || {
        part.memory_error_counter(MemoryError::Uncorrected, EccCounter::Volatile, MemoryLocation::SRAM)
    })?;
    if let Some(errors) = errors {
        reader.put("gpu.ecc_uncorrected", errors as f64);
    }
    reader.number("read a MIG device's processes", "gpu.processes", || {
        part.running_compute_processes_count()
    })?;
    Ok(Some(MigDeviceReading {
        address: format!("{gpu}/{gpu_instance}/{compute_instance}"),
        uuid,
        readings,
    }))
}

/// Calls a function that returns one number of a partition and that the wrapper lacks.
fn id(
    part: &Device<'_>,
    call: &unsafe extern "C" fn(nvmlDevice_t, *mut c_uint) -> nvmlReturn_t,
) -> Result<u32, NvmlError> {
    let mut id: c_uint = 0;
    // SAFETY: the handle is of this library, which lives as long as the device does; the library writes one number.
    nvml_try(unsafe { call(part.handle(), &raw mut id) })?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_and_whoever_is_new_is_asked_at_once() {
        let mut mig = MigReadings::default();
        let parts = |indices: &[u32]| -> BTreeMap<u32, ()> { indices.iter().map(|index| (*index, ())).collect() };
        let mut look = |indices: &[u32]| {
            let asked = mig.turn(&parts(indices));
            mig.told
                .extend(asked.iter().map(|index| (*index, MigDeviceReading::default())));
            asked
        };
        assert_eq!(look(&[0, 1, 2, 3, 4]), [0, 1, 2, 3, 4]);
        assert_eq!(look(&[0, 1, 2, 3, 4]), [2, 3]);
        assert_eq!(look(&[0, 1, 2, 3, 4, 6]), [4, 6]);
        assert_eq!(look(&[0, 1, 2, 3, 5]), [0, 1, 5]);
        assert_eq!(look(&[2]), [2]);
        assert!(look(&[]).is_empty());
    }
}

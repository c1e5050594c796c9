//! Field values: many counters of a device, or of its links, in one call.

use std::ffi::c_int;
use std::mem;

use nvml_wrapper::device::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    nvmlFieldValue_t, nvmlReturn_enum_NVML_SUCCESS, nvmlValueType_enum_NVML_VALUE_TYPE_DOUBLE,
    nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT, nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT, nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
};

/// Part of a device that a field applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldScope {
    /// The whole device, for fields without parts.
    Device,
    /// A single link, by its number.
    Link(u32),
    /// All links together, for the counters of NVLink 5.
    Links,
}

impl FieldScope {
    fn id(self) -> u32 {
        match self {
            Self::Device => 0,
            Self::Link(link) => link,
            Self::Links => u32::MAX,
        }
    }
}

/// Returns the values of fields in their order; `None` for one that the device or its driver lacks. Fails if the
/// library is too old for the call.
pub(super) fn values(device: &Device<'_>, fields: &[(u32, FieldScope)]) -> Result<Vec<Option<f64>>, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let ask = |(field, scope): &(u32, FieldScope)| nvmlFieldValue_t {
        fieldId: *field,
        scopeId: scope.id(),
        // SAFETY: plain numbers and a union of them, for which all-zero bytes are valid.
        ..unsafe { mem::zeroed() }
    };
    let mut asked: Vec<nvmlFieldValue_t> = fields.iter().map(ask).collect();
    let count = c_int::try_from(asked.len()).unwrap_or(0);
    // SAFETY: the handle is of this library, which lives as long as the device does; the library fills in at most
    // `count` entries, which `asked` has.
    nvml_try(unsafe { call(device.handle(), count, asked.as_mut_ptr()) })?;
    Ok(asked.iter().map(number).collect())
}

#[expect(non_upper_case_globals, reason = "names of the library's own header")]
fn number(found: &nvmlFieldValue_t) -> Option<f64> {
    if found.nvmlReturn != nvmlReturn_enum_NVML_SUCCESS {
        return None;
    }
    let value = found.value;
    // SAFETY: every member is a number, and any bytes are a valid one; the type in the answer selects the member.
    unsafe {
        match found.valueType {
            nvmlValueType_enum_NVML_VALUE_TYPE_DOUBLE => Some(value.dVal).filter(|value| value.is_finite()),
            nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => Some(f64::from(value.uiVal)),
            nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG => Some(value.ulVal as f64),
            nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => Some(value.ullVal as f64),
            nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => Some(value.sllVal as f64),
            nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => Some(f64::from(value.siVal)),
            // A type that was added later.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_of_the_type_that_is_told_and_an_unknown_type_is_none() {
        let found = |kind, code, bits: u64| {
            // SAFETY: as in `values`.
            let mut found: nvmlFieldValue_t = unsafe { mem::zeroed() };
            (found.valueType, found.nvmlReturn, found.value.ullVal) = (kind, code, bits);
            number(&found)
        };
        assert_eq!(found(0, 0, 2.5_f64.to_bits()), Some(2.5));
        assert_eq!(found(0, 0, f64::NAN.to_bits()), None);
        assert_eq!(found(1, 0, 7 | 1 << 40), Some(7.0));
        assert_eq!(found(3, 0, 1 << 40), Some((1_u64 << 40) as f64));
        assert_eq!(found(4, 0, (-3_i64).cast_unsigned()), Some(-3.0));
        assert_eq!((found(3, 3, 7), found(99, 0, 7)), (None, None));
    }
}

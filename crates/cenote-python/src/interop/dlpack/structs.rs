//! The C structures of DLPack, and its numbers for devices and dtypes.

use std::ffi::{CStr, c_void};

use cenote::DType;

use crate::runtime::error::{Result, raise};

/// The device `kDLCPU`, number 0.
pub(crate) const CPU: (i32, i32) = (1, 0);
/// `kDLCUDAHost`: memory of the host that a GPU can read.
const CUDA_HOST: i32 = 3;

/// The version of DLPack that the structures follow.
pub(super) const VERSION: Version = Version { major: 1, minor: 0 };
/// Flag of a versioned tensor: the consumer must not write the memory.
pub(super) const READ_ONLY: u64 = 1;
/// Flag of a versioned tensor: the memory is a copy.
pub(super) const IS_COPIED: u64 = 2;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct DLTensor {
    pub(super) data: *mut c_void,
    pub(super) device_type: i32,
    pub(super) device_id: i32,
    pub(super) ndim: i32,
    pub(super) dtype: DataType,
    pub(super) shape: *mut i64,
    /// In elements; null if the elements are contiguous.
    pub(super) strides: *mut i64,
    pub(super) byte_offset: u64,
}

/// What frees a managed tensor.
pub(super) type Deleter<M> = unsafe extern "C" fn(*mut M);

/// The two kinds of managed tensor: [`Legacy`] and [`Versioned`]. The name of a capsule says which kind it has.
pub(super) trait Managed: Sized {
    /// The name of a capsule with such a tensor.
    const NAME: &'static CStr;
    /// The name of the capsule after a consumer took the tensor.
    const USED_NAME: &'static CStr;

    fn new(context: *mut c_void, flags: u64, tensor: DLTensor, deleter: Deleter<Self>) -> Self;
    fn context(&self) -> *mut c_void;
    fn tensor(&self) -> &DLTensor;
    /// Whether the fields after the version may be read: another major version may have other fields.
    fn is_supported(&self) -> bool;
    fn deleter(&self) -> Option<Deleter<Self>>;
}

/// A managed tensor from before version 1.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Legacy {
    tensor: DLTensor,
    context: *mut c_void,
    deleter: Option<Deleter<Legacy>>,
}

impl Managed for Legacy {
    const NAME: &'static CStr = c"dltensor";
    const USED_NAME: &'static CStr = c"used_dltensor";

    fn new(context: *mut c_void, _flags: u64, tensor: DLTensor, deleter: Deleter<Self>) -> Self {
        Legacy { tensor, context, deleter: Some(deleter) }
    }

    fn context(&self) -> *mut c_void {
        self.context
    }

    fn tensor(&self) -> &DLTensor {
        &self.tensor
    }

    fn is_supported(&self) -> bool {
        true
    }

    fn deleter(&self) -> Option<Deleter<Self>> {
        self.deleter
    }
}

/// A managed tensor of version 1.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<Deleter<Versioned>>,
    flags: u64,
    tensor: DLTensor,
}

impl Managed for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED_NAME: &'static CStr = c"used_dltensor_versioned";

    fn new(context: *mut c_void, flags: u64, tensor: DLTensor, deleter: Deleter<Self>) -> Self {
        Versioned { version: VERSION, context, deleter: Some(deleter), flags, tensor }
    }

    fn context(&self) -> *mut c_void {
        self.context
    }

    fn tensor(&self) -> &DLTensor {
        &self.tensor
    }

    fn is_supported(&self) -> bool {
        self.version.major == VERSION.major
    }

    fn deleter(&self) -> Option<Deleter<Self>> {
        self.deleter
    }
}

/// Whether the CPU can read the memory of a device.
pub(super) fn is_host_memory(device_type: i32) -> bool {
    device_type == CPU.0 || device_type == CUDA_HOST
}

/// DLPack's dtype for one of the core.
pub(super) fn data_type(dtype: DType) -> Result<DataType> {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::Bf16 => 4,
        DType::Complex64 | DType::Complex128 => 5,
        DType::Bool => 6,
        other => return Err(raise("DTypeError", format!("DLPack has no {other}"), None)),
    };
    let bits = u8::try_from(8 * dtype.size()).unwrap_or_default();
    Ok(DataType { code, bits, lanes: 1 })
}

/// The core's dtype for one of DLPack. Fails for one that the core does not have.
pub(super) fn dtype_of(given: DataType) -> Result<DType> {
    let same = |dtype: &DType| {
        data_type(*dtype).is_ok_and(|known| (known.code, known.bits) == (given.code, given.bits))
    };
    let found = DType::all().find(same).filter(|_| given.lanes == 1);
    found.ok_or_else(|| raise("DTypeError", format!("cenote has no dtype for {given:?}"), None))
}

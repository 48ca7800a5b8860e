//! The part of the CUDA driver that is needed to allocate memory, loaded at run time.

#![allow(
    unsafe_code,
    reason = "the CUDA driver is a C library; it is called from this program alone, which no product contains"
)]

use std::ffi::{c_int, c_uint, c_void};

use libloading::Library;

/// `CUDA_SUCCESS`.
const SUCCESS: c_int = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: c_int = 2;

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;

/// Whether the driver allocates this many bytes on the first visible device.
pub(crate) fn allocate(bytes: usize) -> Result<bool, String> {
    // SAFETY: the driver's library has no harmful initialiser; its functions are called with the signatures in cuda.h (12.x), from one thread,
    // with pointers to locals that outlive each call.
    unsafe {
        let library = Library::new("libcuda.so.1").map_err(|e| e.to_string())?;
        macro_rules! symbol {
            ($type:ty, $name:literal) => {
                library.get::<$type>($name).map_err(|e| e.to_string())?
            };
        }
        let init = symbol!(Init, b"cuInit\0");
        let device_get = symbol!(DeviceGet, b"cuDeviceGet\0");
        let retain = symbol!(Retain, b"cuDevicePrimaryCtxRetain\0");
        let set_current = symbol!(SetCurrent, b"cuCtxSetCurrent\0");
        let allocate = symbol!(Allocate, b"cuMemAlloc_v2\0");
        let free = symbol!(Free, b"cuMemFree_v2\0");
        let (mut device, mut context, mut memory) = (0, std::ptr::null_mut(), 0);
        checked("cuInit", init(0))?;
        checked("cuDeviceGet", device_get(&raw mut device, 0))?;
        checked("cuDevicePrimaryCtxRetain", retain(&raw mut context, device))?;
        checked("cuCtxSetCurrent", set_current(context))?;
        match allocate(&raw mut memory, bytes) {
            SUCCESS => checked("cuMemFree", free(memory)).map(|()| true),
            OUT_OF_MEMORY => Ok(false),
            other => Err(format!("cuMemAlloc: CUDA error {other}")),
        }
    }
}

fn checked(what: &str, result: c_int) -> Result<(), String> {
    if result == SUCCESS {
        return Ok(());
    }
    Err(format!("{what}: CUDA error {result}"))
}

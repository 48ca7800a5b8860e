//! The part of the CUDA driver that the check needs, loaded at run time.

#![allow(
    unsafe_code,
    reason = "the CUDA driver is a C library; it is called from this program alone, which no product contains"
)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use libloading::Library;

/// `CUDA_SUCCESS`.
const SUCCESS: c_int = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: c_int = 2;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: c_int = 16;

/// A kernel that writes to address 16, which belongs to nobody: the driver ends the program and reports Xid 31.
const WRONG_ADDRESS: &CStr = c".version 6.3
.target sm_75
.address_size 64
.visible .entry wrong_address()
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    mov.u32 %r1, 1;
    mov.u64 %rd1, 16;
    st.global.u32 [%rd1], %r1;
    ret;
}
";

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;
type Load = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> c_int;
type Function = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int;
/// Function, grid (3), block (3), bytes of shared memory, stream, arguments, options.
type Launch = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;
type Synchronize = unsafe extern "C" fn() -> c_int;

/// The driver, with the first visible device's context as that of this thread.
pub(crate) struct Cuda {
    library: Library,
    device: c_int,
}

macro_rules! symbol {
    ($library:expr, $type:ty, $name:literal) => {
        $library.get::<$type>($name).map_err(|e| e.to_string())?
    };
}

impl Cuda {
    /// Starts the driver.
    pub(crate) fn start() -> Result<Self, String> {
        // SAFETY: the driver's library has no harmful initialiser; its functions are called with the signatures in cuda.h (12.x), from one thread,
        // with pointers to locals that outlive each call.
        unsafe {
            let library = Library::new("libcuda.so.1").map_err(|e| e.to_string())?;
            let (mut device, mut context) = (0, null_mut());
            let init = symbol!(library, Init, b"cuInit\0");
            let device_get = symbol!(library, DeviceGet, b"cuDeviceGet\0");
            let retain = symbol!(library, Retain, b"cuDevicePrimaryCtxRetain\0");
            let set_current = symbol!(library, SetCurrent, b"cuCtxSetCurrent\0");
            checked("cuInit", init(0))?;
            checked("cuDeviceGet", device_get(&raw mut device, 0))?;
            checked("cuDevicePrimaryCtxRetain", retain(&raw mut context, device))?;
            checked("cuCtxSetCurrent", set_current(context))?;
            Ok(Self { library, device })
        }
    }

    /// The number of multiprocessors that this program may use.
    pub(crate) fn multiprocessors(&self) -> Result<u32, String> {
        let mut count = 0;
        // SAFETY: as in `start`.
        unsafe {
            let attribute = symbol!(self.library, Attribute, b"cuDeviceGetAttribute\0");
            let result = attribute(&raw mut count, MULTIPROCESSORS, self.device);
            checked("cuDeviceGetAttribute", result)?;
        }
        u32::try_from(count).map_err(|e| e.to_string())
    }

    /// Allocates this many bytes, calls `then` if the driver gave them, and frees them. Returns whether it gave them.
    pub(crate) fn allocate(&self, bytes: usize, then: impl FnOnce()) -> Result<bool, String> {
        let mut memory = 0;
        // SAFETY: as in `start`.
        unsafe {
            let allocate = symbol!(self.library, Allocate, b"cuMemAlloc_v2\0");
            let free = symbol!(self.library, Free, b"cuMemFree_v2\0");
            match allocate(&raw mut memory, bytes) {
                SUCCESS => {
                    then();
                    checked("cuMemFree", free(memory)).map(|()| true)
                }
                OUT_OF_MEMORY => Ok(false),
                other => Err(format!("cuMemAlloc: CUDA error {other}")),
            }
        }
    }

    /// Runs a kernel that writes where it must not; returns the driver's error.
    pub(crate) fn fault(&self) -> Result<c_int, String> {
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: as in `start`; the text ends with a zero, the kernel takes no arguments, and its fault ends the context of this process alone.
        unsafe {
            let load = symbol!(self.library, Load, b"cuModuleLoadData\0");
            let get = symbol!(self.library, Function, b"cuModuleGetFunction\0");
            let launch = symbol!(self.library, Launch, b"cuLaunchKernel\0");
            let synchronize = symbol!(self.library, Synchronize, b"cuCtxSynchronize\0");
            let loaded = load(&raw mut module, WRONG_ADDRESS.as_ptr().cast());
            checked("cuModuleLoadData", loaded)?;
            let found = get(&raw mut function, module, c"wrong_address".as_ptr());
            checked("cuModuleGetFunction", found)?;
            let none = null_mut();
            let launched = launch(function, 1, 1, 1, 1, 1, 1, 0, none, null_mut(), null_mut());
            checked("cuLaunchKernel", launched)?;
            Ok(synchronize())
        }
    }
}

fn checked(what: &str, result: c_int) -> Result<(), String> {
    if result == SUCCESS {
        return Ok(());
    }
    Err(format!("{what}: CUDA error {result}"))
}

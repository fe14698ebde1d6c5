//! The part of the SPANK interface that the plugin uses, by the public manual spank(7): declared by hand, and looked up in
//! the program that has loaded the plugin, so that nothing of Slurm is linked. All `unsafe` of the crate but the exported
//! functions is here.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// spank_t.
pub(crate) type Handle = *mut c_void;

/// ESPANK_SUCCESS.
pub(crate) const SUCCESS: c_int = 0;
/// What a plugin's function returns where it fails.
pub(crate) const FAILURE: c_int = -1;

/// Items that are numbers of 32 bits, by their place in `enum spank_item`.
#[derive(Clone, Copy)]
pub(crate) enum Item {
    User = 0,
    Group = 1,
    Job = 2,
    Step = 3,
    LocalTasks = 6,
    /// The number of the task on this node.
    Task = 11,
    /// The number of the task in the step.
    GlobalTask = 12,
    /// How a task has ended, as wait(2) has it.
    Status = 13,
}

/// Where the plugin is: `enum spank_context`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// srun.
    Local,
    /// slurmstepd.
    Remote,
    /// sbatch, salloc.
    Allocator,
    /// Prolog or epilog.
    JobScript,
    /// Anything else.
    Other,
}

/// An option's callback.
type Callback = extern "C" fn(c_int, *const c_char, c_int) -> c_int;

/// `struct spank_option`.
#[repr(C)]
struct RawOption {
    name: *const c_char,
    argument: *const c_char,
    usage: *const c_char,
    has_argument: c_int,
    value: c_int,
    callback: Option<Callback>,
}

/// An option of srun, sbatch and salloc.
pub(crate) struct Choice {
    /// Its name, without the dashes.
    pub(crate) name: &'static CStr,
    /// What it does.
    pub(crate) usage: &'static CStr,
    /// What its callback gets as its first argument.
    pub(crate) number: c_int,
    /// The callback.
    pub(crate) callback: Callback,
}

impl Choice {
    fn raw(&self) -> RawOption {
        RawOption {
            name: self.name.as_ptr(),
            argument: c"SIZE".as_ptr(),
            usage: self.usage.as_ptr(),
            has_argument: 1,
            value: self.number,
            callback: Some(self.callback),
        }
    }
}

/// The address of one of Slurm's functions; none if the program does not have it.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a NUL.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// Looks a function up by its name, with its type.
macro_rules! function {
    ($name:expr, $type:ty) => {
        find($name).map(|address| {
            // SAFETY: the manual gives this function this type.
            unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
        })
    };
}

/// Where the plugin is.
pub(crate) fn context() -> Context {
    let Some(context) = function!(c"spank_context", extern "C" fn() -> c_int) else { return Context::Other };
    match context() {
        1 => Context::Local,
        2 => Context::Remote,
        3 => Context::Allocator,
        5 => Context::JobScript,
        _ => Context::Other,
    }
}

/// Makes an option known; only from slurm_spank_init.
pub(crate) fn register(handle: Handle, choice: &Choice) -> bool {
    type Register = unsafe extern "C" fn(Handle, *const RawOption) -> c_int;
    let raw = choice.raw();
    // SAFETY: Slurm passed the handle, and copies the option.
    function!(c"spank_option_register", Register)
        .is_some_and(|register| unsafe { register(handle, &raw const raw) } == SUCCESS)
}

/// The value of an option; none if it was not given.
pub(crate) fn option(handle: Handle, choice: &Choice) -> Option<String> {
    type Get = unsafe extern "C" fn(Handle, *const RawOption, *mut *mut c_char) -> c_int;
    let get = function!(c"spank_option_getopt", Get)?;
    let (raw, mut value) = (choice.raw(), std::ptr::null_mut());
    // SAFETY: Slurm passed the handle; both places live during the call.
    let code = unsafe { get(handle, &raw const raw, &raw mut value) };
    // SAFETY: a value is a text that Slurm keeps.
    (code == SUCCESS).then(|| unsafe { text(value) }).flatten()
}

/// A variable of the job.
pub(crate) fn variable(handle: Handle, name: &str) -> Option<String> {
    type Get = unsafe extern "C" fn(Handle, *const c_char, *mut c_char, c_int) -> c_int;
    let get = function!(c"spank_getenv", Get)?;
    let name = CString::new(name).ok()?;
    let mut room = vec![0_u8; 128 << 10];
    // SAFETY: Slurm passed the handle; it writes at most the length that is given, with a NUL at the end.
    let code = unsafe { get(handle, name.as_ptr(), room.as_mut_ptr().cast(), room.len() as c_int) };
    if code != SUCCESS {
        return None;
    }
    Some(CStr::from_bytes_until_nul(&room).ok()?.to_string_lossy().into_owned())
}

/// Sets a variable of the job.
pub(crate) fn set_variable(handle: Handle, name: &str, value: &str) -> bool {
    type Set = unsafe extern "C" fn(Handle, *const c_char, *const c_char, c_int) -> c_int;
    let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) else { return false };
    // SAFETY: Slurm passed the handle, and copies both texts.
    function!(c"spank_setenv", Set)
        .is_some_and(|set| unsafe { set(handle, name.as_ptr(), value.as_ptr(), 1) } == SUCCESS)
}

/// A number that Slurm knows of the job or the task.
pub(crate) fn item(handle: Handle, item: Item) -> Option<u32> {
    type Get = unsafe extern "C" fn(Handle, c_int, ...) -> c_int;
    let get = function!(c"spank_get_item", Get)?;
    let mut value = 0_u32;
    // SAFETY: Slurm passed the handle; every item of the list is a number of 32 bits.
    let code = unsafe { get(handle, item as c_int, &raw mut value) };
    (code == SUCCESS).then_some(value)
}

/// Writes a line to Slurm's log, as an error or not.
pub(crate) fn log(error: bool, line: &str) {
    print(if error { c"slurm_error" } else { c"slurm_info" }, line);
}

/// Writes a line to the user of srun, sbatch or salloc.
pub(crate) fn answer(line: &str) {
    print(c"slurm_spank_log", line);
}

fn print(function: &CStr, line: &str) {
    type Log = unsafe extern "C" fn(*const c_char, ...);
    let Ok(line) = CString::new(line.replace('\0', "")) else { return };
    if let Some(log) = function!(function, Log) {
        // SAFETY: the format takes one text.
        unsafe { log(c"%s".as_ptr(), line.as_ptr()) };
    }
}

/// A text of Slurm's.
///
/// # Safety
/// The pointer is null or points to a text that ends with a NUL.
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: as required.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// The words that Slurm passes to each function.
///
/// # Safety
/// `words` points to `count` texts.
pub(crate) unsafe fn words(count: c_int, words: *const *const c_char) -> Vec<String> {
    if words.is_null() {
        return Vec::new();
    }
    // SAFETY: as required.
    (0..usize::try_from(count).unwrap_or(0)).filter_map(|place| unsafe { text(*words.add(place)) }).collect()
}

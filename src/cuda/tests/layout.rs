//! Compares every type, constant and signature of the crate with the public headers, by having the C
//! compiler judge one assertion a line. It writes C files into the temporary folder and starts `cc` and
//! `scripts/abi`; nothing else.
//!
//! The headers of the newest release must know everything. The older release may lack what came later:
//! such a line is left out there and counted, but a line that it does know must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_cuda::nvml::*;
use weir_cuda::*;

/// One thing that C must agree with.
struct Claim {
    /// What it is about, for the message.
    about: String,
    /// A C declaration on one line that compiles only if the claim holds.
    line: String,
}

fn claim(about: impl Into<String>, line: impl Into<String>) -> Claim {
    Claim { about: about.into(), line: line.into() }
}

/// What the C compiler said.
#[derive(Debug, Default)]
struct Judgement {
    /// The headers know the thing and say otherwise.
    wrong: Vec<String>,
    /// The headers don't know the thing.
    unknown: Vec<String>,
    agreed: usize,
}

/// The folders that `scripts/abi` keeps the headers in, by name.
fn headers() -> BTreeMap<String, PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/abi");
    let out = Command::new(&script)
        .arg("--headers")
        .output()
        .unwrap_or_else(|e| panic!("{} can't be started: {e}", script.display()));
    assert!(
        out.status.success(),
        "the public CUDA headers can't be fetched, so no layout can be proven: {} said\n{}",
        script.display(),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(|l| l.split_once('='))
        .map(|(name, folder)| (name.to_owned(), PathBuf::from(folder)))
        .collect()
}

/// Lets `cc` read `includes` and then one claim a line.
fn judge(test: &str, include: &Path, includes: &str, claims: &[Claim]) -> Judgement {
    let home = std::env::temp_dir().join(format!("weir-layout-{}-{test}", std::process::id()));
    // What the headers want from headers that their packages don't bring: only these names.
    let foreign = [
        ("GL/gl.h", "typedef unsigned int GLuint; typedef unsigned int GLenum;"),
        ("EGL/egl.h", "typedef int EGLint; typedef void *EGLStreamKHR, *EGLImageKHR, *EGLSyncKHR;"),
        ("EGL/eglext.h", ""),
        ("cudaProfiler.h", "typedef int CUoutput_mode;"),
        (
            "vdpau/vdpau.h",
            "typedef unsigned VdpDevice, VdpVideoSurface, VdpOutputSurface, VdpStatus, VdpFuncId; typedef VdpStatus VdpGetProcAddress(VdpDevice, VdpFuncId, void **);",
        ),
    ];
    for (name, text) in foreign {
        let file = home.join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("temporary folder");
        std::fs::write(file, text).expect("temporary file");
    }
    let mut text = format!("#define __CUDA_API_VERSION_INTERNAL 1\n{includes}\n#line 1\n");
    for c in claims {
        assert!(!c.line.contains('\n'), "one line a claim: {}", c.line);
        writeln!(text, "{}", c.line).expect("a string");
    }
    let source = home.join("claims.c");
    std::fs::write(&source, text).expect("temporary file");
    let out = Command::new("cc")
        .env("LC_ALL", "C")
        .args(["-std=gnu11", "-fsyntax-only", "-fno-diagnostics-show-caret"])
        .args(["-Werror=incompatible-pointer-types", "-Werror=int-conversion"])
        .arg("-isystem")
        .arg(include)
        .arg("-isystem")
        .arg(&home)
        .arg(&source)
        .output()
        .expect("a C compiler named cc");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    std::fs::remove_dir_all(&home).expect("temporary folder");

    // A line with an unknown name draws complaints about its consequences too: unknown wins.
    let mut complaints: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for l in said.lines().filter(|l| l.contains("error:")) {
        let number = l
            .strip_prefix(&format!("{}:", source.display()))
            .and_then(|rest| rest.split(':').next())
            .and_then(|n| n.parse().ok());
        let Some(number) = number else { panic!("cc stumbled outside the claims: {l}\n{said}") };
        complaints.entry(number).or_default().push(l);
    }
    assert!(out.status.success() || !complaints.is_empty(), "cc failed without naming a claim:\n{said}");
    let unknown = ["undeclared", "has no member named", "unknown type name", "expected"];
    let mut judgement = Judgement { agreed: claims.len() - complaints.len(), ..Judgement::default() };
    for (number, lines) in complaints {
        let about = &claims[number - 1].about;
        if lines.iter().any(|l| unknown.iter().any(|u| l.contains(u))) {
            judgement.unknown.push(about.clone());
        } else {
            judgement.wrong.push(format!("{about}: {}", lines.join("; ")));
        }
    }
    judgement
}

/// Size of the field that `_path` would reach; it is never called.
fn size_of_field<S, F>(_path: impl Fn(*const S) -> *const F) -> usize {
    size_of::<F>()
}

fn struct_claims(c: &str, size: usize, align: usize, fields: &[(&str, usize, usize)]) -> Vec<Claim> {
    let mut claims = vec![
        claim(format!("size of {c}"), format!("_Static_assert(sizeof({c}) == {size}, \"\");")),
        claim(
            format!("alignment of {c}"),
            format!("_Static_assert(__builtin_offsetof(struct {{ char c; {c} t; }}, t) == {align}, \"\");"),
        ),
    ];
    for (path, offset, size) in fields {
        claims.push(claim(
            format!("offset of {c}.{path}"),
            format!("_Static_assert(__builtin_offsetof({c}, {path}) == {offset}, \"\");"),
        ));
        claims.push(claim(
            format!("size of {c}.{path}"),
            format!("_Static_assert(sizeof((({c}*)0)->{path}) == {size}, \"\");"),
        ));
    }
    claims
}

macro_rules! fields {
    ($rust:ty; $($($field:ident).+ = $path:literal),*) => {
        [$((
            $path,
            offset_of!($rust, $($field).+),
            // SAFETY: the closure gives its parameter a type and is never run.
            size_of_field(|p: *const $rust| unsafe { &raw const (*p).$($field).+ }),
        )),*]
    };
}

macro_rules! structs {
    ($($rust:ident as $c:literal { $($($field:ident).+ = $path:literal),* $(,)? })*) => {
        /// Rust names of all structs and unions, and what is claimed of them.
        fn structs() -> Vec<(&'static str, Vec<Claim>)> {
            vec![$((
                stringify!($rust),
                struct_claims($c, size_of::<$rust>(), align_of::<$rust>(), &fields!($rust; $($($field).+ = $path),*)),
            )),*]
        }
    };
}

macro_rules! enums {
    ($($rust:ident { $($constant:ident),* $(,)? })*) => {
        /// Rust names of all enums, and what is claimed of them.
        fn enums() -> Vec<(&'static str, Vec<Claim>)> {
            vec![$((stringify!($rust), vec![$(claim(
                concat!("value of ", stringify!($constant)),
                format!(
                    "_Static_assert((long long){} == {}LL && sizeof({}) == {}, \"\");",
                    stringify!($constant), $rust::$constant.0 as i64, stringify!($constant), size_of::<$rust>(),
                ),
            )),*])),*]
        }
    };
}

include!("layout/rows.rs");

/// A Rust argument type as C.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(pointer) = rust.strip_prefix('*') {
        let pointer = pointer.trim();
        return match pointer.strip_prefix("const ") {
            Some(inner) => c_type(inner) + " const*",
            None => c_type(pointer.strip_prefix("mut ").unwrap_or(pointer)) + "*",
        };
    }
    let plain = match rust {
        "c_void" => "void",
        "c_char" => "char",
        "c_uchar" => "unsigned char",
        "c_ushort" => "unsigned short",
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_ulonglong" => "unsigned long long",
        "c_float" => "float",
        "usize" => "size_t",
        "u64" => "cuuint64_t",
        "u32" => "cuuint32_t",
        other => other,
    };
    plain.to_owned()
}

struct Signature {
    function: &'static Function,
    arguments: Vec<String>,
}

macro_rules! signatures {
    ($($symbol:ident of $base:ident = $name:literal $version:literal $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        static ARGUMENTS: [&[&str]; COUNT] = [$(&[$(stringify!($ty)),*]),*];
    };
}
driver_functions!(signatures);

fn signatures() -> Vec<Signature> {
    let rows = FUNCTIONS.iter().zip(ARGUMENTS);
    rows.map(|(function, arguments)| Signature { function, arguments: arguments.iter().map(|ty| c_type(ty)).collect() })
        .collect()
}

/// Graphics functions take other vendors' types, which the crate passes through as plain pointers and
/// integers: C must accept a call with those, by number and kind of the arguments.
fn is_graphics(s: &Signature) -> bool {
    ["GL", "Egl", "VDPAU"].iter().any(|word| s.function.name.contains(word))
}

const GRAPHICS_INCLUDES: &str =
    "#include <vdpau/vdpau.h>\n#include <cuda.h>\n#include <cudaGL.h>\n#include <cudaEGL.h>\n#include <cudaVDPAU.h>";

fn graphics_claim(s: &Signature) -> Claim {
    let (mut parameters, mut names) = (Vec::new(), Vec::new());
    for (i, ty) in s.arguments.iter().enumerate() {
        let ty = if ty.ends_with('*') { "void*" } else { ty };
        parameters.push(format!("{ty} a{i}"));
        names.push(format!("a{i}"));
    }
    claim(
        s.function.symbol,
        format!(
            "CUresult call_{0}({1}) {{ return (&{0})({2}); }}",
            s.function.symbol,
            parameters.join(", "),
            names.join(", ")
        ),
    )
}

/// The declared prototype of the symbol is the crate's.
fn prototype_claim(s: &Signature) -> Claim {
    let symbol = s.function.symbol;
    claim(symbol, format!("CUresult (*p_{symbol})({}) = {symbol};", parameters(s)))
}

/// The function-pointer type that the headers name after function and version is the crate's.
fn typedef_claim(s: &Signature) -> Claim {
    let f = s.function;
    let variant = match f.variant {
        Variant::Legacy => "",
        Variant::Ptsz => "_ptsz",
        Variant::Ptds => "_ptds",
    };
    claim(
        f.symbol,
        format!(
            "_Static_assert(__builtin_types_compatible_p(PFN_{}_v{}{variant}, CUresult (*)({})), \"\");",
            f.name,
            f.version,
            parameters(s)
        ),
    )
}

fn parameters(s: &Signature) -> String {
    if s.arguments.is_empty() { "void".to_owned() } else { s.arguments.join(", ") }
}

fn flat(rows: Vec<(&'static str, Vec<Claim>)>) -> Vec<Claim> {
    rows.into_iter().flat_map(|(_, claims)| claims).collect()
}

#[test]
fn every_struct_has_the_layout_of_the_headers() {
    let headers = headers();
    let claims = flat(structs());
    assert!(claims.len() > 1000, "only {} claims", claims.len());
    let new = judge("structs13", &headers["cuda13"], "#include <cuda.h>", &claims);
    assert!(new.wrong.is_empty() && new.unknown.is_empty(), "{new:#?}");
    let old = judge("structs12", &headers["cuda12"], "#include <cuda.h>", &claims);
    let differing: BTreeSet<&str> = old.wrong.iter().filter_map(|w| w.split(": ").next()).collect();
    assert_eq!(differing, BTreeSet::from(GREW_IN_13), "{:#?}", old.wrong);
    assert!(old.agreed * 10 > claims.len() * 8, "too little is known: {old:#?}");
    println!("{} claims, the older headers lack {}", claims.len(), old.unknown.len());
}

/// Where release 13 gave a struct more fields, at its end or out of its reserved bytes. Whoever writes
/// such a struct for a caller of release 12 must know it.
const GREW_IN_13: [&str; 19] = [
    "size of CUDA_HOST_NODE_PARAMS_v2",
    "size of CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2",
    "size of CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2",
    "size of CUDA_EVENT_RECORD_NODE_PARAMS",
    "offset of CUmemPoolProps_v1.reserved",
    "size of CUmemPoolProps_v1.reserved",
    "size of CUgraphNodeParams.host",
    "size of CUgraphNodeParams.eventRecord",
    "size of CUgraphNodeParams.extSemSignal",
    "size of CUgraphNodeParams.extSemWait",
    "offset of CUcheckpointCheckpointArgs.reserved",
    "size of CUcheckpointCheckpointArgs.reserved",
    "offset of CUcheckpointRestoreArgs.reserved",
    "size of CUcheckpointRestoreArgs.reserved",
    "size of CUdevSmResource",
    "size of CUdevResource_v1.sm",
    "size of CUdevResource_v1._oversize",
    "alignment of CUtensorMap",
    "alignment of CUdevResource_v1",
];

#[test]
fn every_constant_has_the_value_of_the_headers() {
    let headers = headers();
    let claims = flat(enums());
    let new = judge("enums13", &headers["cuda13"], "#include <cuda.h>", &claims);
    assert!(new.wrong.is_empty() && new.unknown.is_empty(), "{new:#?}");
    // One past the last constant: it grows with every release by its meaning.
    let lasting: Vec<Claim> =
        claims.into_iter().filter(|c| !c.about.ends_with("_MAX") && !c.about.ends_with("_NUM_OPTIONS")).collect();
    let old = judge("enums12", &headers["cuda12"], "#include <cuda.h>", &lasting);
    assert!(old.wrong.is_empty(), "{:#?}", old.wrong);
    assert!(old.agreed * 10 > lasting.len() * 8, "too little is known: {old:#?}");
}

#[test]
fn every_function_has_the_signature_of_the_headers() {
    let headers = headers();
    let signatures = signatures();
    let (graphics, plain): (Vec<_>, Vec<_>) = signatures.iter().partition(|s| is_graphics(s));
    let typedefs: Vec<Claim> = plain.iter().map(|s| typedef_claim(s)).collect();
    let prototypes: Vec<Claim> = plain.iter().map(|s| prototype_claim(s)).collect();
    let calls: Vec<Claim> = graphics.iter().map(|s| graphics_claim(s)).collect();

    let typedef_includes = "#include <cuda.h>\n#include <cudaTypedefs.h>\n#include <cudaProfilerTypedefs.h>";
    for (kind, includes, claims) in [
        ("typedefs", typedef_includes, &typedefs),
        ("prototypes", typedef_includes, &prototypes),
        ("graphics", GRAPHICS_INCLUDES, &calls),
    ] {
        let mut unknown: Option<BTreeSet<String>> = None;
        for set in ["cuda12", "cuda13"] {
            let said = judge(&format!("{kind}-{set}"), &headers[set], includes, claims);
            assert!(said.wrong.is_empty(), "{set} {kind}: {:#?}", said.wrong);
            let lacking: BTreeSet<String> = said.unknown.into_iter().collect();
            unknown = Some(match unknown {
                None => lacking,
                Some(before) => before.intersection(&lacking).cloned().collect(),
            });
        }
        let mut nowhere = unknown.unwrap_or_default();
        if kind == "prototypes" {
            // Their header is in neither package; the typedefs are.
            nowhere.retain(|symbol| !symbol.starts_with("cuProfiler"));
        }
        assert!(nowhere.is_empty(), "{kind} of neither release: {nowhere:#?}");
    }
}

#[test]
fn the_opaque_frame_is_as_large_as_the_headers_make_it() {
    let frame = size_of::<CUeglFrame_v1>();
    let align = align_of::<CUeglFrame_v1>();
    let claims = struct_claims("CUeglFrame_v1", frame, align, &[]);
    let headers = headers();
    for set in ["cuda12", "cuda13"] {
        let said = judge(&format!("egl-{set}"), &headers[set], GRAPHICS_INCLUDES, &claims);
        assert_eq!(said.agreed, claims.len(), "{said:#?}");
    }
}

#[test]
fn nvml_structs_have_the_layout_of_the_header() {
    let headers = headers();
    macro_rules! nvml {
        ($($rust:ident as $c:literal { $($field:ident = $path:literal),* })*) => {
            vec![$((stringify!($rust), struct_claims(
                $c, size_of::<$rust>(), align_of::<$rust>(), &fields!($rust; $($field = $path),*),
            ))),*]
        };
    }
    let mut rows = nvml! {
        NvmlMemory as "nvmlMemory_t" { total = "total", free = "free", used = "used" }
        NvmlMemoryV2 as "nvmlMemory_v2_t" { version = "version", total = "total", reserved = "reserved", free = "free", used = "used" }
        NvmlProcessInfoV1 as "nvmlProcessInfo_v1_t" { pid = "pid", used_gpu_memory = "usedGpuMemory" }
        NvmlProcessInfo as "nvmlProcessInfo_v2_t" { pid = "pid", used_gpu_memory = "usedGpuMemory", gpu_instance_id = "gpuInstanceId", compute_instance_id = "computeInstanceId" }
        NvmlPciInfo as "nvmlPciInfo_t" { bus_id_legacy = "busIdLegacy", domain = "domain", bus = "bus", device = "device", pci_device_id = "pciDeviceId", pci_subsystem_id = "pciSubSystemId", bus_id = "busId" }
    };
    let value = |name: &str, value: u32| claim(name, format!("_Static_assert({name} == {value}u, \"\");"));
    rows.push((
        "NvmlReturn",
        vec![
            value("NVML_SUCCESS", NvmlReturn::SUCCESS.0),
            value("NVML_ERROR_UNINITIALIZED", NvmlReturn::UNINITIALIZED.0),
            value("NVML_ERROR_INVALID_ARGUMENT", NvmlReturn::INVALID_ARGUMENT.0),
            value("NVML_ERROR_NOT_SUPPORTED", NvmlReturn::NOT_SUPPORTED.0),
            value("NVML_ERROR_NO_PERMISSION", NvmlReturn::NO_PERMISSION.0),
            value("NVML_ERROR_ALREADY_INITIALIZED", NvmlReturn::ALREADY_INITIALIZED.0),
            value("NVML_ERROR_NOT_FOUND", NvmlReturn::NOT_FOUND.0),
            value("NVML_ERROR_INSUFFICIENT_SIZE", NvmlReturn::INSUFFICIENT_SIZE.0),
            value("NVML_ERROR_DRIVER_NOT_LOADED", NvmlReturn::DRIVER_NOT_LOADED.0),
            value("NVML_ERROR_FUNCTION_NOT_FOUND", NvmlReturn::FUNCTION_NOT_FOUND.0),
            value("NVML_ERROR_ARGUMENT_VERSION_MISMATCH", NvmlReturn::ARGUMENT_VERSION_MISMATCH.0),
            value("NVML_ERROR_UNKNOWN", NvmlReturn::UNKNOWN.0),
            value("nvmlMemory_v2", NVML_MEMORY_V2),
        ],
    ));
    let covered: BTreeSet<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(names_in(include_str!("../src/nvml.rs")), covered);
    let said = judge("nvml", &headers["nvml"], "#include <nvml.h>", &flat(rows));
    assert!(said.wrong.is_empty() && said.unknown.is_empty(), "{said:#?}");
}

/// Names of the structs and unions in a Rust source that have fields to compare.
fn names_in(source: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        let opaque = lines.peek().is_some_and(|l| l.contains("_unused"));
        let name = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub union "));
        if let (Some(name), false) = (name, opaque) {
            names.insert(name.split([' ', '(']).next().unwrap_or(name));
        }
    }
    names
}

#[test]
fn no_type_is_left_out() {
    let covered: BTreeSet<&str> = structs().iter().chain(&enums()).map(|(name, _)| *name).collect();
    for name in names_in(include_str!("../src/types.rs")) {
        let inside_another =
            name.contains("__bindgen_ty") || covered.iter().any(|c| name.starts_with(&format!("{c}_")));
        assert!(covered.contains(name) || inside_another, "{name} is compared by no row");
    }
    for s in signatures() {
        for ty in s.arguments {
            let base = ty.trim_end_matches(['*', ' ']).replace(" const", "").replace('*', "");
            assert!(!base.contains("__bindgen"), "{base} in {}", s.function.symbol);
        }
    }
}

#[test]
fn a_wrong_claim_is_refused() {
    let headers = headers();
    let folder = &headers["cuda13"];
    let said = |claims: &[Claim]| judge("wrong", folder, "#include <cuda.h>\n#include <cudaTypedefs.h>", claims);
    let size = size_of::<CUDA_MEMCPY2D_st>();
    let offset = offset_of!(CUDA_MEMCPY2D_st, dstXInBytes);
    let field = size_of::<usize>();
    let layout = |size, offset| struct_claims("CUDA_MEMCPY2D_v2", size, 8, &[("dstXInBytes", offset, field)]);
    assert_eq!(said(&layout(size, offset)).agreed, 4);
    assert_eq!(said(&layout(size + 8, offset)).wrong.len(), 1, "wrong size");
    assert_eq!(said(&layout(size, offset + 8)).wrong.len(), 1, "wrong offset");
    let value = "_Static_assert((long long)CUDA_ERROR_OUT_OF_MEMORY == 3LL, \"\");";
    assert_eq!(said(&[claim("wrong value", value)]).wrong.len(), 1);
    let all = signatures();
    let find = |symbol: &str| all.iter().find(|s| s.function.symbol == symbol).expect("a row");
    let good = find("cuMemAlloc_v2");
    let bad = Signature { function: good.function, arguments: vec!["CUdeviceptr*".into(), "unsigned int".into()] };
    assert_eq!(said(&[prototype_claim(good), typedef_claim(good)]).agreed, 2);
    assert_eq!(said(&[prototype_claim(&bad), typedef_claim(&bad)]).wrong.len(), 2);
    assert_eq!(said(&[claim("no such type", "cuNoSuchType x;")]).unknown.len(), 1);
}

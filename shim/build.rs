//! Link options of libweir.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Never unloaded: pointers to its functions live on in the job (and in libraries at exit).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Its own references mean its own functions, also when another preload defines the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}

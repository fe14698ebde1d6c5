//! Gives the library the name under which programs look for the CUDA runtime.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcudart.so.12");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

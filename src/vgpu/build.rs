//! Gives the library the name under which programs look for the driver, and binds it to its own functions: what a driver calls
//! and gives out are its own, whoever else in the process exports their names.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}

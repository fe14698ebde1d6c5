//! Memory locations without the union that the header wraps around the device number.

use crate::types::{CUmemLocation, CUmemLocationType};

impl CUmemLocation {
    /// The location of a kind and number.
    pub fn of(kind: CUmemLocationType, id: i32) -> Self {
        let mut location = Self { type_: kind, ..Self::default() };
        location.__bindgen_anon_1.id = id;
        location
    }

    /// The number of the device or node.
    pub fn id(&self) -> i32 {
        // SAFETY: every member of the union is made of integers, and `id` spans all of it.
        unsafe { self.__bindgen_anon_1.id }
    }
}

// A preload library that does nothing: what start-up is compared with.
int nothing_at_all;

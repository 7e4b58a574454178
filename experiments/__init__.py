"""The experiments: the paper's, the arena of methods, and molecules. They call lvd as any user does."""

"""Official .pth checkpoints: read without trusting them, written anew as safetensors.

The pickle inside is parsed in a process that can do nothing else; everything it says is checked.
Nothing here imports torch.
"""

"""Model calls: make a request, receive the response, judge the answer."""
